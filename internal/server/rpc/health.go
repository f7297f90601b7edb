package rpc

import (
	"context"

	"connectrpc.com/connect/v2"

	healthv1 "agentbox/internal/gen/health/v1"
	"agentbox/internal/gen/health/v1/healthv1connect"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/server"
)

// health answers probes, as /readiness does.
type health struct{ Parts }

// Check tells how the server is now.
func (h *health) Check(ctx context.Context, q *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	switch q.GetService() {
	case "", sandboxv1connect.SandboxServiceName:
		return &healthv1.HealthCheckResponse{Status: h.status(ctx)}, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, "unknown service")
}

func (h *health) status(ctx context.Context) healthv1.HealthCheckResponse_ServingStatus {
	select {
	case <-h.Draining:
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
	}
	if err := h.Ready(ctx); err != nil {
		server.LogError(ctx, err)
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

// Watch tells how the server is until it stops.
func (h *health) Watch(ctx context.Context, q *healthv1.HealthCheckRequest, stream healthv1connect.HealthWatchServerStream) error {
	a, err := h.Check(ctx, q)
	if err != nil {
		a = &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVICE_UNKNOWN}
	}
	if err := stream.Send(a); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return status(ctx, context.Cause(ctx))
	case <-h.Draining:
	}
	if err == nil {
		err = stream.Send(&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING})
	}
	return err
}
