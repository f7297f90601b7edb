package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// The raw channel is what transfers of files are measured by: the stream into a
// sandbox with nothing on it, and the guest channel, which is a stream of the
// multiplexer on it. In place of the agent this program is the first process
// there. It reads a byte, and then takes or gives fileSize bytes.
const (
	rawTake = 't' // answered by one byte, when all has come
	rawGive = 'g'
	rawMux  = 'm' // the rest is the multiplexer's, with the same on its stream
	rawFD   = 3   // where the first process has the host's stream
	rawUnit = 1 << 20
)

// isRawGuest reports whether this is the first process of a sandbox.
func isRawGuest() bool { return os.Args[0] == runtime.AgentPath }

// rawGuest serves the host until its stream ends.
func rawGuest() error {
	if err := unix.SetNonblock(rawFD, true); err != nil { // as the agent has it
		return err
	}
	host := os.NewFile(rawFD, "host")
	if _, err := guest.NextKey(host); err != nil {
		return err
	}
	return rawServe(guestConn{host})
}

// guestConn is the host's stream as the multiplexer wants it.
type guestConn struct{ *os.File }

func (guestConn) LocalAddr() net.Addr  { return nil }
func (guestConn) RemoteAddr() net.Addr { return nil }

func rawServe(host net.Conn) error {
	buf, order := make([]byte, rawUnit), make([]byte, 1)
	for {
		if _, err := io.ReadFull(host, order); err != nil {
			return err
		}
		if order[0] == rawMux {
			mux, err := guest.NewMux(host, false)
			if err != nil {
				return err
			}
			stream, err := mux.Accept()
			if err != nil {
				return err
			}
			return rawServe(stream)
		}
		for left := fileSize; left > 0; {
			n, err := min(left, rawUnit), error(nil)
			if order[0] == rawTake {
				n, err = host.Read(buf[:n])
			} else {
				n, err = host.Write(buf[:n])
			}
			if err != nil {
				return err
			}
			left -= n
		}
		if order[0] == rawTake {
			if _, err := host.Write(order); err != nil {
				return err
			}
		}
	}
}

// rawChannel is the host's end of one.
type rawChannel struct {
	conn net.Conn
	buf  []byte
}

func (c *rawChannel) take() error {
	if _, err := c.conn.Write([]byte{rawTake}); err != nil {
		return err
	}
	for range fileSize / rawUnit {
		if _, err := c.conn.Write(c.buf); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(c.conn, c.buf[:1])
	return err
}

// mux makes the rest of the channel the multiplexer's and returns a stream of it.
func (c *rawChannel) mux() (*rawChannel, error) {
	if _, err := c.conn.Write([]byte{rawMux}); err != nil {
		return nil, err
	}
	mux, err := guest.NewMux(c.conn, true)
	if err != nil {
		return nil, err
	}
	stream, err := mux.Open()
	return &rawChannel{stream, c.buf}, err
}

func (c *rawChannel) give() error {
	if _, err := c.conn.Write([]byte{rawGive}); err != nil {
		return err
	}
	for range fileSize / rawUnit {
		if _, err := io.ReadFull(c.conn, c.buf); err != nil {
			return err
		}
	}
	return nil
}

// raw gives a raw channel to f.
func (o *own) raw(ctx context.Context, f func(*rawChannel) error) (err error) {
	dir, err := os.MkdirTemp("", "agentbox-raw")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	img, release, err := rawImage(ctx, dir)
	if err != nil {
		return err
	}
	defer release()
	id := ids.UID()
	limits := sandbox.Limits{}.WithDefaults()
	if err := o.rt.Create(ctx, runtime.Spec{ID: id, Limits: limits, Image: runtime.Image{Path: img.Path, Digest: img.Digest}}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.rt.Destroy(ctx, id)) }()
	if err := o.rt.Start(ctx, id); err != nil {
		return err
	}
	conn, err := o.rt.Attach(ctx, id)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		return err
	}
	return f(&rawChannel{conn, make([]byte, rawUnit)})
}

// rawImage makes an image of nothing but this program.
func rawImage(ctx context.Context, dir string) (image.Image, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return image.Image{}, nil, err
	}
	store, err := image.Open(filepath.Join(dir, "images"), image.Agent{Path: self, Build: "bench"})
	if err != nil {
		return image.Image{}, nil, err
	}
	const name = "raw"
	archive, err := emptyImage(name)
	if err == nil {
		_, err = store.Load(ctx, bytes.NewReader(archive), image.LoadOptions{Name: name})
	}
	if err != nil {
		return image.Image{}, nil, fmt.Errorf("make an image of this program: %w", err)
	}
	return store.Acquire(ctx, name)
}

// emptyImage is an image without files, as "docker save" would write it.
func emptyImage(name string) ([]byte, error) {
	layer := make([]byte, 1024) // a tar without entries
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": goruntime.GOARCH,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name + ":1"}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		body []byte
	}{{"layer.tar", layer}, {"config.json", config}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.body))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
