package sandbox_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	agentbox "agentbox/sdk/go"
	"agentbox/sdk/go/sandbox"
)

// statuses are those of gRPC, by number.
var statuses = []string{
	1: "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

var kinds = map[string]error{
	"InvalidArgument": agentbox.ErrInvalidArgument, "OutOfRange": agentbox.ErrOutOfRange, "Unsupported": agentbox.ErrUnsupported, "Unauthenticated": agentbox.ErrUnauthenticated,
	"PermissionDenied": agentbox.ErrPermissionDenied, "NotFound": agentbox.ErrNotFound, "Conflict": agentbox.ErrConflict, "AlreadyExists": agentbox.ErrAlreadyExists,
	"RateLimited": agentbox.ErrRateLimited, "TooLarge": agentbox.ErrTooLarge, "Unavailable": agentbox.ErrUnavailable, "ServerError": agentbox.ErrInternal,
}

// TestStatuses: a status is the kind of error that the clients of all languages have for it.
func TestStatuses(t *testing.T) {
	text, err := os.ReadFile("../../errors.json")
	if err != nil {
		t.Skip("this is not the project's tree:", err)
	}
	var table struct{ GRPC map[string]string }
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	var number int
	var said string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", strconv.Itoa(number))
		w.Header().Set("Grpc-Message", said)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	s := sandbox.New(server.URL)
	defer s.Close()
	check := func(want string) {
		t.Helper()
		if _, err := s.Create(within(t), sandbox.Options{}); !errors.Is(err, kinds[want]) || err.Error() != said {
			t.Errorf("%s is %v, and should be %s", statuses[number], err, want)
		}
	}
	for number, said = 1, "in words"; number < len(statuses); number++ {
		check(table.GRPC[statuses[number]])
	}
	number, said = 8, "message size 70000000 is larger than configured max 67108864"
	check("TooLarge")
}
