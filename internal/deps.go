package internal

import (
	_ "github.com/containerd/errdefs"
	_ "github.com/creack/pty"
	_ "github.com/hashicorp/yamux"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/opencontainers/runtime-spec/specs-go"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "google.golang.org/protobuf/proto"
	_ "gvisor.dev/gvisor/runsc/cli/maincli"
)
