package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentbox/internal/config"
)

// Variables that name the server that commands talk to.
const (
	urlVariable = "AGENTBOX_URL"
	keyVariable = "AGENTBOX_API_KEY"
)

const (
	apiPrefix = "/api/v1"
	// maxAnswer bounds what is read of a server's answer, in bytes.
	maxAnswer = 64 << 20
)

// remote is a server: this machine's by its local socket, or one by URL.
type remote struct {
	base, key string
	where     string // for messages
	client    *http.Client
}

// remote finds the server of a command.
func (a *App) remote(cmd *cobra.Command) (*remote, error) {
	if base := os.Getenv(urlVariable); base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%s is no URL of a server, such as http://127.0.0.1:8700", urlVariable)
		}
		return &remote{base: strings.TrimSuffix(base, "/"), key: os.Getenv(keyVariable), where: base, client: http.DefaultClient}, nil
	}
	flags := map[string]string{}
	if f := cmd.Flags().Lookup("data-dir"); f != nil && f.Changed {
		flags[f.Name] = f.Value.String()
	}
	loaded, err := config.Load(config.Sources{File: config.DefaultFile(os.LookupEnv), Env: os.LookupEnv, Flags: flags})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", loaded.Socket)
	}
	// The name is only what the request is written for; the socket needs no key.
	return &remote{base: "http://localhost", where: loaded.Socket, client: &http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// call sends a request and decodes the answer into out, if that is not nil.
func (r *remote) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := r.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && out != nil {
		err = json.Unmarshal(answer, out)
	}
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	return nil
}

// send sends a request and returns an answer that is no error; the caller closes
// its body.
func (r *remote) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+apiPrefix+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	resp, err := r.client.Do(req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("reach the server at %s: %w\n(start one with agentbox serve, or name another in %s)", r.where, errors.Unwrap(err), urlVariable)
	case resp.StatusCode < http.StatusBadRequest:
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	return nil, refusal(resp, answer)
}

// refusal is a server's error in its own words.
func refusal(resp *http.Response, answer []byte) error {
	var p struct {
		Detail json.RawMessage `json:"detail"`
		Code   string          `json:"code"`
		Reason string          `json:"reason"`
	}
	var text string
	var fields []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	switch {
	case json.Unmarshal(answer, &p) != nil:
		return fmt.Errorf("the server answered %s", resp.Status)
	case json.Unmarshal(p.Detail, &text) == nil:
	case json.Unmarshal(p.Detail, &fields) == nil && len(fields) > 0:
		text = strings.TrimSpace(fmt.Sprintln(append(fields[0].Loc, fields[0].Msg)...))
	default:
		text = "the server answered " + resp.Status
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	if p.Code == "unauthenticated" {
		text += "; set " + keyVariable
	}
	return errors.New(text)
}

// pages reads a whole list.
func pages[T any](ctx context.Context, r *remote, path string, query url.Values) ([]T, error) {
	all := []T{}
	query.Set("limit", "1000")
	for {
		var page struct {
			Items      []T     `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := r.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}
