//go:build embed

package programs

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

//go:embed embedded/agentbox-engine.zst
var engineZst []byte

//go:embed embedded/agentbox-guest.zst
var guestZst []byte

// compressed is an embedded program.
type compressed []byte

func find(name string) (program, error) {
	switch name {
	case engineName:
		return compressed(engineZst), nil
	case guestName:
		return compressed(guestZst), nil
	}
	return nil, fmt.Errorf("%s is not embedded", name)
}

func (c compressed) build() (string, error) { return contentHash(bytes.NewReader(c)) }

func (c compressed) open() (io.ReadCloser, error) {
	// The compressor may look back 128 MiB (--long=27).
	d, err := zstd.NewReader(bytes.NewReader(c), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
