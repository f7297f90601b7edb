//go:build embed

package programs

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// embedded: the programs are in the executable.
const embedded = true

//go:embed embedded/agentbox-engine.zst
var engineZst []byte

//go:embed embedded/agentbox-guest.zst
var guestZst []byte

// The builds are hashed when they are embedded: hashing the engine at each start
// would cost some 10 ms.

//go:embed embedded/agentbox-engine.id
var engineID string

//go:embed embedded/agentbox-guest.id
var guestID string

// compressed is an embedded program.
type compressed struct {
	zst []byte
	id  string
}

func find(name string) (program, error) {
	switch name {
	case engineName:
		return compressed{engineZst, engineID}, nil
	case guestName:
		return compressed{guestZst, guestID}, nil
	}
	return nil, fmt.Errorf("%s is not embedded", name)
}

func (c compressed) build() (string, error) { return strings.TrimSpace(c.id), nil }

func (c compressed) open() (io.ReadCloser, error) {
	// The compressor may look back 128 MiB (--long=27).
	d, err := zstd.NewReader(bytes.NewReader(c.zst), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
