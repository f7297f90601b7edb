package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Key is an API key as it is shown: never with its secret.
type Key struct {
	ID        string     `json:"id" doc:"Names the key, in the audit log, too."`
	Owner     string     `json:"owner" doc:"Whose things the key reaches."`
	Name      string     `json:"name" doc:"Your word for it."`
	Admin     bool       `json:"admin"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at" doc:"Since when it lets nobody in; null: it is good."`
}

// NewKey is a key that was just made.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"The key itself. This is the only time that it is shown."`
}

type createKeyInput struct {
	Repeatable
	Body struct {
		Owner string `json:"owner,omitempty" default:"default" maxLength:"63" pattern:"^[a-z0-9][a-z0-9_-]*$" doc:"Whose things the key is to reach."`
		Name  string `json:"name,omitempty" maxLength:"64" pattern:"^[ -~]*$" doc:"Your word for it."`
		Admin Bool   `json:"admin,omitempty" doc:"Whether it may do what concerns the whole service."`
	}
}

type (
	newKeyOutput  struct{ Body NewKey }
	listKeysInput struct{ Page }
	keysOutput    struct{ Body List[Key] }
	revokeInput   struct {
		ID string `path:"id" maxLength:"64" doc:"The key's id."`
	}
)

// toKeep leaves the secret out: the store has hashes of keys only.
func (o *newKeyOutput) toKeep() ([]byte, error) {
	shown := *o
	shown.Body.Secret = ""
	return json.Marshal(shown)
}

func (a *API) addKeys() {
	admin := server.Route{Access: auth.NeedAdmin}
	tags := []string{"Keys"}
	route(a, huma.Operation{
		OperationID: "create-key", Method: http.MethodPost, Path: "/keys", Summary: "Make an API key", Tags: tags,
		Description: "The key is shown once: the same request with the same Idempotency-Key is a conflict, which names the key that was made, also when its answer was lost.", DefaultStatus: http.StatusCreated,
	}, admin, a.createKey)
	route(a, huma.Operation{
		OperationID: "list-keys", Method: http.MethodGet, Path: "/keys", Summary: "List the API keys, oldest first", Tags: tags,
	}, admin, a.listKeys)
	route(a, huma.Operation{
		OperationID: "revoke-key", Method: http.MethodDelete, Path: "/keys/{id}", Summary: "Revoke an API key", Tags: tags,
		Description: "From the next request on it lets nobody in, and the streams and requests that are open by it end. It stays in the list.", DefaultStatus: http.StatusNoContent,
	}, admin, a.revokeKey)
}

func (a *API) createKey(ctx context.Context, c sandbox.Caller, in *createKeyInput) (*newKeyOutput, error) {
	out, err := repeat(ctx, a, c, in.Key, "create-key", in.Body, func(ctx context.Context, made string) (*newKeyOutput, error) { return a.newKey(ctx, c, in, made) })
	if err == nil && out.Body.Secret == "" { // who asked first was shown it, or nobody was: the server ended
		return nil, sandbox.Refuse(errdefs.ErrConflict, "this request made the key %s before, which is shown only once: revoke it and make another", out.Body.ID)
	}
	return out, err
}

func (a *API) newKey(ctx context.Context, c sandbox.Caller, in *createKeyInput, made string) (*newKeyOutput, error) {
	k, secret, err := a.Keys.CreateOnce(ctx, made, in.Body.Owner, in.Body.Name, in.Body.Admin.Value)
	a.record(ctx, c, audit.KeyCreate, err, map[string]string{"id": k.ID, "for": in.Body.Owner})
	if err != nil {
		return nil, err
	}
	return &newKeyOutput{NewKey{Key: keyOf(k), Secret: secret}}, nil
}

func (a *API) listKeys(ctx context.Context, _ sandbox.Caller, in *listKeysInput) (*keysOutput, error) {
	all, err := a.Keys.List(ctx)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(all, in.Page, func(k auth.Key) string { return k.ID })
	if err != nil {
		return nil, err
	}
	var items []Key
	for _, k := range page {
		items = append(items, keyOf(k))
	}
	return &keysOutput{list(items, next)}, nil
}

func (a *API) revokeKey(ctx context.Context, c sandbox.Caller, in *revokeInput) (*struct{}, error) {
	_, err := a.Keys.Revoke(ctx, in.ID)
	a.record(ctx, c, audit.KeyRevoke, err, map[string]string{"id": in.ID})
	if errdefs.IsNotFound(err) {
		return nil, sandbox.Refuse(errdefs.ErrNotFound, "Key not found")
	}
	return nil, err
}

func keyOf(k auth.Key) Key {
	shown := Key{ID: k.ID, Owner: k.Owner, Name: k.Name, Admin: k.Admin, CreatedAt: k.CreatedAt}
	if k.Revoked() {
		shown.RevokedAt = &k.RevokedAt
	}
	return shown
}
