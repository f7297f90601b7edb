module agentbox/sdk/go

go 1.26.0

require (
	connectrpc.com/connect/v2 v2.0.2
	github.com/coder/websocket v1.8.15
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
)
