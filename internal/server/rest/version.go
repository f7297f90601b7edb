package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Version is what runs here.
type Version struct {
	Version string `json:"version" doc:"Of the product."`
	API     string `json:"api" doc:"Of this API." example:"v1"`
}

type versionOutput struct{ Body Version }

func (a *API) addVersion() {
	route(a, huma.Operation{
		OperationID: "get-version", Method: http.MethodGet, Path: "/version", Summary: "Which version runs", Tags: []string{"Service"},
	}, server.Route{}, func(context.Context, sandbox.Caller, *struct{}) (*versionOutput, error) {
		return &versionOutput{Version{Version: a.Version, API: "v1"}}, nil
	})
}
