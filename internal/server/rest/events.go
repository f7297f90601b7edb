package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/sandbox"
)

// Event is one thing that happened to a sandbox.
type Event struct {
	Seq    int64     `json:"seq" doc:"Grows with every event of the server."`
	Time   time.Time `json:"time"`
	Type   string    `json:"type" enum:"state,failure,update,oom,adopted" doc:"state: its state changed; failure: that was tried and failed; adopted: a server that was started anew took it over."`
	Status string    `json:"status" doc:"Its state after that."`
	Reason string    `json:"reason" doc:"Why; may be empty."`
	Detail string    `json:"detail" doc:"More in words; may be empty."`
}

type eventsInput struct {
	SandboxID
	Page
	Follow Bool   `query:"follow" doc:"A stream of events until the sandbox is gone."`
	After  string `header:"Last-Event-ID" maxLength:"20" doc:"Continue a stream behind this event."`
}

func (a *API) addEvents() {
	op := huma.Operation{
		OperationID: "list-sandbox-events", Method: http.MethodGet, Path: "/sandboxes/{id}/events", Summary: "What happened to a sandbox", Tags: []string{"Sandboxes"},
		Description: "Oldest first. The last thousand are kept.",
	}
	routeStreamed[List[Event]](a, op, "Events of the names of the types, with the data of one item; seq is the id.", a.listEvents)
}

func (a *API) listEvents(ctx context.Context, c sandbox.Caller, in *eventsInput) (*streamed, error) {
	after, err := number("cursor", in.Cursor)
	if err != nil {
		return nil, err
	}
	if in.Follow.Value {
		return a.followEvents(ctx, c, in, after)
	}
	all, err := a.Sandboxes.Events(ctx, c, in.ID, after)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(all) > in.Limit {
		all = all[:in.Limit]
		next = strconv.FormatInt(all[in.Limit-1].Seq, 10)
	}
	var items []Event
	for i := range all {
		items = append(items, eventOf(&all[i]))
	}
	return answer(list(items, next)), nil
}

func (a *API) followEvents(ctx context.Context, c sandbox.Caller, in *eventsInput, after int64) (*streamed, error) {
	last, err := number("Last-Event-ID", in.After)
	if err != nil {
		return nil, err
	}
	f, err := a.Sandboxes.Follow(ctx, c, in.ID, max(after, last))
	if err != nil {
		return nil, err
	}
	return stream(func(ctx context.Context, s *eventStream) {
		err := a.each(ctx, s, func(ctx context.Context) (func() error, error) {
			all, err := f.Next(ctx)
			return func() error {
				for i := range all {
					if err := s.send(strconv.FormatInt(all[i].Seq, 10), string(all[i].Type), eventOf(&all[i])); err != nil {
						return err
					}
				}
				return nil
			}, err
		})
		if !errors.Is(err, io.EOF) {
			s.fail(ctx, err)
		}
	}), nil
}

// number reads a place in the list of events; nothing is its beginning.
func number(field, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, &sandbox.InvalidError{Field: field, Value: s, Allowed: "what an answer before gave"}
	}
	return n, nil
}

func eventOf(e *sandbox.Event) Event {
	return Event{Seq: e.Seq, Time: e.Time, Type: string(e.Type), Status: string(e.Status), Reason: string(e.Reason), Detail: e.Detail}
}
