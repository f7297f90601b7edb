package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/egress/vault"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Secrets are what the routes about secrets need; vault.Vault has it.
type Secrets interface {
	Set(ctx context.Context, owner string, n vault.NewSecret) (s sandbox.Secret, fresh bool, err error)
	List(owner string) []sandbox.Secret
	Remove(ctx context.Context, owner, name string) error
}

// Secret is a secret as it is shown: never with its value.
type Secret struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" nullable:"false" doc:"Hosts whose requests it is put into."`
	Header    string    `json:"header" doc:"Header that it stands in."`
	Format    string    `json:"format" doc:"What the header becomes, with {} where the value goes. Empty: the value takes the place of the placeholder."`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at" doc:"When it got its value."`
}

type (
	setSecretInput struct {
		Body struct {
			Name   string      `json:"name" maxLength:"63" doc:"Name of the secret and of the variable that sandboxes have: letters, digits and _, not beginning with a digit."`
			Value  vault.Value `json:"value" format:"password" writeOnly:"true" doc:"The secret itself: 8 bytes to 4 KiB of UTF-8 without control characters. It is never shown again."`
			Hosts  []string    `json:"hosts" maxItems:"64" doc:"Hosts that may have it: a name, all names below one (*.example.com) or an address, each with a port or on 80 and 443. It goes over TLS only."`
			Header string      `json:"header,omitempty" maxLength:"64" doc:"Header that it stands in. Default: Authorization."`
			Format string      `json:"format,omitempty" maxLength:"256" doc:"What that header becomes, with {} where the value goes, such as Bearer {}. Default: the value takes the place of the placeholder, and all around it stays; in credentials of the Basic scheme, too."`
		}
	}
	setSecretOutput struct {
		Status int
		Body   Secret
	}
	secretsInput  struct{ Page }
	secretsOutput struct{ Body List[Secret] }
	secretInput   struct {
		Name string `path:"name" maxLength:"63" doc:"The secret."`
	}
)

func (a *API) addSecrets() {
	tags := []string{"Secrets"}
	route(a, private(huma.Operation{
		OperationID: "set-secret", Method: http.MethodPost, Path: "/secrets", Summary: "Keep a secret, or give it another value", Tags: tags,
		Description:   "Sandboxes that are made with it in secrets use it without seeing it: they have a placeholder, in whose place the value is put on the way to the hosts that are named. The same request again changes nothing.",
		DefaultStatus: http.StatusCreated,
		Responses:     map[string]*huma.Response{"200": {Description: "There was one of that name; it has the new value and settings, also for sandboxes that have it.", Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf[Secret](a)}}}},
	}), server.Route{}, a.setSecret)
	route(a, huma.Operation{
		OperationID: "list-secrets", Method: http.MethodGet, Path: "/secrets", Summary: "List your secrets, by name", Tags: tags,
		Description: "Their values are never shown.",
	}, server.Route{}, a.listSecrets)
	route(a, huma.Operation{
		OperationID: "remove-secret", Method: http.MethodDelete, Path: "/secrets/{name}", Summary: "Remove a secret", Tags: tags,
		Description: "From the next request on it is put in nowhere, also not for sandboxes that have it. A later secret of the same name is another one.", DefaultStatus: http.StatusNoContent,
	}, server.Route{}, a.removeSecret)
}

func (a *API) setSecret(ctx context.Context, c sandbox.Caller, in *setSecretInput) (*setSecretOutput, error) {
	b := &in.Body
	s, fresh, err := a.Secrets.Set(ctx, c.Owner, vault.NewSecret{Name: b.Name, Value: b.Value, Hosts: b.Hosts, Header: b.Header, Format: b.Format})
	// What was refused may have the value in a wrong place: only what was kept is
	// recorded.
	details := map[string]string{"set": s.Name}
	if err == nil {
		details["header"] = s.Header
		addList(details, "hosts", s.Hosts)
	}
	a.record(ctx, c, audit.Secret, err, details)
	if err != nil {
		return nil, err
	}
	out := &setSecretOutput{http.StatusOK, secretOf(&s)}
	if fresh {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (a *API) listSecrets(_ context.Context, c sandbox.Caller, in *secretsInput) (*secretsOutput, error) {
	page, next := pageByName(a.Secrets.List(c.Owner), in.Page, func(s *sandbox.Secret) string { return s.Name })
	var items []Secret
	for i := range page {
		items = append(items, secretOf(&page[i]))
	}
	return &secretsOutput{list(items, next)}, nil
}

func (a *API) removeSecret(ctx context.Context, c sandbox.Caller, in *secretInput) (*struct{}, error) {
	err := a.Secrets.Remove(ctx, c.Owner, in.Name)
	details := map[string]string{"remove": in.Name}
	if err != nil {
		details = nil // it may be no name
	}
	a.record(ctx, c, audit.Secret, err, details)
	return nil, err
}

func secretOf(s *sandbox.Secret) Secret {
	return Secret{Name: s.Name, Hosts: s.Hosts, Header: s.Header, Format: s.Format, CreatedAt: s.Created, UpdatedAt: s.Updated}
}
