package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list -json` tells of a package.
type pkg struct {
	ImportPath                         string
	Doc                                string
	Name                               string
	Standard                           bool
	Imports, TestImports, XTestImports []string
}

// layers says what each package may import of this module and of the world.
// "std" is always allowed. A pattern ending in "/..." covers what is below.
// The first matching row counts, so special rows stand before general ones.
var layers = []struct {
	pkg string
	may []string
}{
	{"agentbox/internal/sandbox", nil},
	{"agentbox/internal/ids", nil},
	{"agentbox/internal/datadir", nil},
	{"agentbox/internal/nearest", nil},
	{"agentbox/internal/pump", nil},
	{"agentbox/internal/heartbeat", []string{"github.com/coder/websocket"}},
	{"agentbox/internal/peercred", []string{"golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/internal/auth/authtest", []string{"agentbox/internal/auth", "github.com/containerd/errdefs"}},
	{"agentbox/internal/server/rest", []string{"agentbox/internal/failpoint", "agentbox/internal/packages", "agentbox/internal/sandbox", "agentbox/internal/manager", "agentbox/internal/volume", "agentbox/internal/transfer", "agentbox/internal/runtime", "agentbox/internal/image", "agentbox/internal/auth", "agentbox/internal/audit", "agentbox/internal/egress/journal", "agentbox/internal/egress/vault", "agentbox/internal/server", "agentbox/internal/server/doors", "agentbox/internal/nearest", "agentbox/internal/guest", "agentbox/internal/guest/client", "agentbox/internal/guest/wording", "agentbox/internal/shell", "github.com/danielgtaylor/huma/v2/...", "github.com/coder/websocket", "github.com/containerd/errdefs", "agentbox/internal/heartbeat", "agentbox/internal/ids"}},
	{"agentbox/internal/server/rest/resttest", nil},
	{"agentbox/internal/server/rpc/rpctest", []string{"agentbox/internal/gen/sandbox/v1", "connectrpc.com/connect/v2", "google.golang.org/protobuf/..."}},
	{"agentbox/internal/server/doors", []string{"agentbox/internal/server", "agentbox/internal/sandbox", "agentbox/internal/audit", "agentbox/internal/guest", "github.com/containerd/errdefs"}},
	{"agentbox/internal/server/sandboxes", []string{"agentbox/internal/server", "agentbox/internal/server/doors", "agentbox/internal/sandbox", "agentbox/internal/manager", "agentbox/internal/runtime", "agentbox/internal/auth", "agentbox/internal/audit", "agentbox/internal/guest/client", "agentbox/internal/guest/wording", "agentbox/internal/ids", "github.com/containerd/errdefs"}},
	{"agentbox/internal/server/rpc", []string{"agentbox/internal/packages", "agentbox/internal/server", "agentbox/internal/server/doors", "agentbox/internal/sandbox", "agentbox/internal/manager", "agentbox/internal/auth", "agentbox/internal/audit", "agentbox/internal/guest", "agentbox/internal/guest/wording", "agentbox/internal/guest/client", "agentbox/internal/gen/...", "agentbox/internal/ids", "connectrpc.com/connect/v2/...", "connectrpc.com/grpcreflect/v2", "google.golang.org/protobuf/...", "golang.org/x/sync/semaphore", "github.com/containerd/errdefs"}},
	{"agentbox/internal/server", []string{"agentbox/internal/datadir", "agentbox/internal/sandbox", "agentbox/internal/auth", "agentbox/internal/audit", "agentbox/internal/ids", "github.com/prometheus/client_golang/prometheus/...", "golang.org/x/sync/errgroup", "golang.org/x/time/rate", "golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/internal/telemetry", []string{"agentbox/internal/sandbox", "github.com/prometheus/client_golang/prometheus/...", "github.com/containerd/errdefs"}},
	{"agentbox/internal/auth", []string{"agentbox/internal/sandbox", "agentbox/internal/ids", "agentbox/internal/peercred", "github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/time/rate", "github.com/containerd/errdefs"}},
	{"agentbox/internal/audit", []string{"agentbox/internal/sandbox"}},
	{"agentbox/internal/egress/policy", []string{"agentbox/internal/sandbox", "golang.org/x/net/idna", "golang.org/x/text/unicode/norm", "github.com/containerd/errdefs"}},
	{"agentbox/internal/packages", []string{"agentbox/internal/sandbox", "agentbox/internal/egress/policy", "github.com/containerd/errdefs"}},
	{"agentbox/internal/egress/dial", []string{"agentbox/internal/egress/policy", "github.com/containerd/errdefs"}},
	{"agentbox/internal/egress/token/tokentest", nil},
	{"agentbox/internal/egress/token", []string{"agentbox/internal/keyfile"}},
	{"agentbox/internal/keyfile", []string{"github.com/containerd/errdefs"}},
	{"agentbox/internal/egress/hide", []string{"agentbox/internal/pump"}},
	{"agentbox/internal/egress/mint", []string{"agentbox/internal/egress", "agentbox/internal/keyfile", "github.com/hashicorp/golang-lru/v2/simplelru"}},
	{"agentbox/internal/egress/journal", []string{"agentbox/internal/audit", "agentbox/internal/egress", "github.com/hashicorp/golang-lru/v2/simplelru", "golang.org/x/time/rate"}},
	{"agentbox/internal/egress/vault", []string{"agentbox/internal/egress", "agentbox/internal/egress/policy", "agentbox/internal/keyfile", "agentbox/internal/sandbox", "github.com/containerd/errdefs"}},
	{"agentbox/internal/egress", []string{"agentbox/internal/sandbox", "github.com/containerd/errdefs", "agentbox/internal/egress/policy", "agentbox/internal/egress/dial", "agentbox/internal/egress/hide", "agentbox/internal/egress/token", "agentbox/internal/pump", "golang.org/x/sys/unix", "golang.org/x/time/rate"}},
	{"agentbox/internal/cabundle", []string{"agentbox/internal/sandbox"}},
	{"agentbox/internal/config", []string{"agentbox/internal/cabundle", "agentbox/internal/sandbox", "agentbox/internal/nearest", "github.com/BurntSushi/toml", "github.com/spf13/pflag"}},
	{"agentbox/internal/cleanup", nil},
	{"agentbox/internal/failpoint", nil},
	{"agentbox/internal/transfer", nil},
	{"agentbox/internal/volume", []string{"agentbox/internal/sandbox", "agentbox/internal/transfer", "agentbox/internal/ids", "golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/internal/gen/...", []string{"agentbox/internal/gen/...", "google.golang.org/protobuf/...", "connectrpc.com/connect/v2/..."}},
	{"agentbox/internal/cgroup", []string{"agentbox/internal/sandbox", "agentbox/internal/cleanup", "golang.org/x/sys/unix"}},
	{"agentbox/internal/owner", []string{"agentbox/internal/datadir", "agentbox/internal/ids", "golang.org/x/sys/unix"}},
	{"agentbox/internal/doctor", []string{"agentbox/internal/cgroup", "agentbox/internal/datadir", "agentbox/internal/sandbox", "golang.org/x/sys/unix"}},
	{"agentbox/internal/programs", []string{"github.com/klauspost/compress/zstd", "golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/internal/image/erofs/erofstest", nil},
	{"agentbox/internal/image/erofs", []string{"golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/internal/image/oci", []string{"github.com/google/go-containerregistry/pkg/...", "github.com/klauspost/compress/...", "golang.org/x/sync/errgroup", "github.com/containerd/errdefs"}},
	{"agentbox/internal/image", []string{"agentbox/internal/image/erofs", "agentbox/internal/image/oci", "agentbox/images", "agentbox/internal/sandbox", "agentbox/internal/ids", "agentbox/internal/cleanup",
		"github.com/klauspost/compress/zstd", "golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/images", nil},

	// The guest protocol and its two ends know nothing of back ends.
	{"agentbox/internal/guest/...", []string{"agentbox/internal/guest/...", "agentbox/internal/pump", "agentbox/internal/gen/guest/v1", "agentbox/internal/sandbox", "agentbox/internal/ids", "agentbox/internal/cleanup",
		"google.golang.org/protobuf/...", "github.com/hashicorp/yamux", "github.com/containerd/errdefs", "github.com/creack/pty", "golang.org/x/net/dns/dnsmessage", "golang.org/x/sys/unix"}},
	{"agentbox/cmd/agentbox-guest", []string{"agentbox/internal/guest/..."}},

	// Back ends know the seam, never each other nor who calls them.
	{"agentbox/internal/runtime", []string{"agentbox/internal/sandbox", "github.com/containerd/errdefs"}},
	{"agentbox/internal/runtime/fake/...", []string{"agentbox/internal/runtime", "agentbox/internal/runtime/fake/toyos", "agentbox/internal/sandbox", "agentbox/internal/guest/...", "agentbox/internal/gen/guest/v1", "agentbox/internal/ids", "github.com/containerd/errdefs"}},
	{"agentbox/internal/runtime/runtimetest", []string{"agentbox/internal/runtime", "agentbox/internal/sandbox", "agentbox/internal/guest/...", "agentbox/internal/gen/guest/v1", "agentbox/internal/ids", "github.com/containerd/errdefs", "golang.org/x/sys/unix"}},
	{"agentbox/internal/runtime/gvisor", []string{"agentbox/internal/failpoint", "agentbox/internal/runtime", "agentbox/internal/sandbox", "agentbox/internal/guest", "agentbox/internal/cgroup", "agentbox/internal/ids", "agentbox/internal/cleanup",
		"gvisor.dev/gvisor/...", "github.com/opencontainers/runtime-spec/...", "golang.org/x/sys/unix", "github.com/containerd/errdefs"}},
	{"agentbox/cmd/agentbox-engine/...", []string{"gvisor.dev/gvisor/...", "github.com/google/subcommands", "golang.org/x/sys/unix"}},

	{"agentbox/internal/ports", []string{"agentbox/internal/sandbox", "github.com/containerd/errdefs"}},
	{"agentbox/internal/control", []string{"agentbox/internal/owner", "agentbox/internal/peercred", "agentbox/internal/guest", "agentbox/internal/gen/guest/v1", "agentbox/internal/ids", "google.golang.org/protobuf/proto", "github.com/containerd/errdefs"}},
	{"agentbox/internal/store", []string{"agentbox/internal/failpoint", "agentbox/internal/sandbox", "github.com/containerd/errdefs", "modernc.org/sqlite", "modernc.org/sqlite/lib"}},
	{"agentbox/internal/live", []string{"agentbox/internal/runtime", "agentbox/internal/image", "agentbox/internal/guest/client", "agentbox/internal/gen/guest/v1", "agentbox/internal/sandbox", "agentbox/internal/ids", "agentbox/internal/cleanup", "github.com/containerd/errdefs"}},
	{"agentbox/internal/manager", []string{"agentbox/internal/failpoint", "agentbox/internal/packages", "agentbox/internal/live", "agentbox/internal/volume", "agentbox/internal/ports", "agentbox/internal/runtime", "agentbox/internal/image", "agentbox/internal/guest/client", "agentbox/internal/sandbox", "agentbox/internal/ids", "golang.org/x/sync/errgroup", "github.com/containerd/errdefs"}},
	{"agentbox/internal/shell", []string{"agentbox/internal/guest/client", "agentbox/internal/sandbox", "agentbox/internal/ids", "github.com/containerd/errdefs"}},
	{"agentbox/internal/local", []string{"agentbox/internal/live", "agentbox/internal/runtime", "agentbox/internal/owner", "agentbox/internal/image", "agentbox/internal/guest/client", "agentbox/internal/sandbox", "agentbox/internal/ids", "agentbox/internal/cleanup"}},
	{"agentbox/internal/cli", []string{"agentbox/internal/cabundle", "agentbox/internal/local", "agentbox/internal/packages", "agentbox/internal/config", "agentbox/internal/control", "agentbox/internal/doctor", "agentbox/internal/image", "agentbox/internal/image/oci", "agentbox/internal/owner", "agentbox/internal/ports", "agentbox/internal/transfer", "agentbox/internal/guest/client", "agentbox/internal/sandbox", "agentbox/internal/runtime", "agentbox/internal/ids", "agentbox/internal/nearest", "agentbox/internal/heartbeat", "github.com/coder/websocket", "github.com/spf13/cobra", "golang.org/x/term", "golang.org/x/sys/unix", "github.com/containerd/errdefs", "github.com/spf13/pflag", "github.com/coreos/go-systemd/v22/daemon"}},
	// Wiring: may import everything of ours, but not gVisor itself.
	{"agentbox/internal/wire", []string{"agentbox/internal/...", "golang.org/x/sync/errgroup"}},
	{"agentbox/cmd/agentbox", []string{"agentbox/internal/cli", "agentbox/internal/wire", "golang.org/x/sys/unix"}},
	{"agentbox/internal/e2e/...", []string{"agentbox/internal/...", "connectrpc.com/connect/v2/...", "github.com/rogpeppe/go-internal/testscript", "github.com/creack/pty", "github.com/coder/websocket", "github.com/containerd/errdefs", "golang.org/x/sys/unix"}},
	{"agentbox/internal/manual", []string{"agentbox/internal/cli", "github.com/spf13/cobra/..."}},
	{"agentbox/internal/bench", []string{"agentbox/internal/...", "connectrpc.com/connect/v2/...", "google.golang.org/protobuf/encoding/protowire", "golang.org/x/sys/unix"}},
	{"agentbox/internal/manual", []string{"agentbox/internal/cli", "github.com/spf13/cobra", "github.com/spf13/cobra/doc"}},
	{"agentbox/internal/arch", nil},
}

// testMay is allowed in test files beyond a package's own row.
var testMay = []string{"go.uber.org/goleak", "github.com/rogpeppe/go-internal/testscript", "golang.org/x/sys/unix", "google.golang.org/protobuf/...", "github.com/containerd/errdefs"}

// testRows are further imports of single packages' tests.
var testRows = map[string][]string{
	"agentbox/internal/runtime/gvisor": {"agentbox/internal/runtime/runtimetest", "agentbox/internal/guest/...", "agentbox/internal/gen/guest/v1", "agentbox/internal/image/...", "agentbox/internal/programs"},
	"agentbox/internal/image/erofs":    {"agentbox/internal/image/erofs/erofstest"},
	"agentbox/internal/image":          {"agentbox/internal/egress/dial", "agentbox/internal/image/erofs/erofstest", "github.com/google/go-containerregistry/pkg/..."},
	"agentbox/internal/egress/dial":    {"golang.org/x/net/dns/dnsmessage"},
	"agentbox/internal/egress":         {"github.com/coder/websocket", "agentbox/internal/egress/mint", "agentbox/internal/egress/token/tokentest"},
	"agentbox/internal/egress/token":   {"agentbox/internal/egress/token/tokentest"},
	"agentbox/internal/egress/vault":   {"agentbox/internal/store"},
	"agentbox/internal/cli":            {"github.com/creack/pty"},
	"agentbox/internal/e2e":            {"golang.org/x/net/dns/dnsmessage", "github.com/google/go-containerregistry/pkg/...", "github.com/vishvananda/netlink", "modernc.org/sqlite"},
	"agentbox/internal/live":           {"agentbox/internal/runtime/fake"},
	"agentbox/internal/local":          {"agentbox/internal/runtime/fake", "agentbox/internal/transfer"},
	"agentbox/internal/manager":        {"agentbox/internal/runtime/fake", "agentbox/internal/store", "modernc.org/sqlite"},
	"agentbox/internal/volume":         {"agentbox/internal/store"},
	"agentbox/internal/auth":           {"agentbox/internal/auth/authtest"},
	"agentbox/internal/server/rest":    {"agentbox/internal/server/rest/resttest", "agentbox/internal/auth/authtest", "agentbox/internal/runtime/fake", "agentbox/internal/store"},
	"agentbox/internal/server/rpc":     {"agentbox/internal/server/rpc/rpctest", "agentbox/internal/auth/authtest", "agentbox/internal/runtime/fake", "agentbox/internal/store", "agentbox/internal/image", "agentbox/internal/volume", "agentbox/internal/egress/policy"},
	"agentbox/internal/server":         {"agentbox/internal/auth/authtest"},
	"agentbox/internal/runtime/fake":   {"agentbox/internal/runtime/runtimetest"},

	"agentbox/internal/server/sandboxes": {"agentbox/internal/auth/authtest", "agentbox/internal/runtime/fake", "agentbox/internal/store", "agentbox/internal/volume", "agentbox/internal/image", "agentbox/internal/server/rest/resttest"},
}

func TestImports(t *testing.T) {
	for _, p := range list(t, "agentbox/...") {
		row := slices.IndexFunc(layers, func(l struct {
			pkg string
			may []string
		}) bool {
			return match(l.pkg, p.ImportPath)
		})
		if row < 0 {
			t.Errorf("%s has no row in layers: say what it may import", p.ImportPath)
			continue
		}
		may := layers[row].may
		check(t, p.ImportPath, p.Imports, may)
		tests := slices.Concat(may, testMay, testRows[p.ImportPath], []string{p.ImportPath})
		check(t, p.ImportPath+" (tests)", append(p.TestImports, p.XTestImports...), tests)
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	for _, p := range list(t, "agentbox/...") {
		if p.Doc == "" && !strings.HasPrefix(p.ImportPath, "agentbox/internal/gen/") {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestPinnedModules holds the modules whose newer versions break gVisor's build.
func TestPinnedModules(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/opencontainers/runtime-spec").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "v1.2.1" {
		t.Errorf("runtime-spec is %s; v1.3.0 made LinuxPids.Limit a pointer, which gVisor does not compile with: keep v1.2.1", got)
	}
}

func check(t *testing.T, who string, imports, may []string) {
	t.Helper()
	for _, imp := range imports {
		first, _, _ := strings.Cut(imp, "/")
		std := first != "agentbox" && !strings.Contains(first, ".")
		if !std && !slices.ContainsFunc(may, func(m string) bool { return match(m, imp) }) {
			t.Errorf("%s must not import %s", who, imp)
		}
	}
}

func match(pattern, path string) bool {
	if p, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == p || strings.HasPrefix(path, p+"/")
	}
	return pattern == path
}

func list(t *testing.T, pattern string) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json", pattern).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
