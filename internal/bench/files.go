package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"agentbox/internal/guest/client"
)

// fileSize is how much one transfer moves.
const fileSize = 100 << 20

// step is one transfer of fileSize bytes.
type step struct {
	to *samples
	do func() error
}

// files measures transfers of files, and streams to and from a command, beside
// what they can't exceed: the raw channel and the guest channel, which have no
// file at their end (see raw.go), and a program in the sandbox that writes and
// reads as much without any channel. The budget in MB/s is 0.8 of what a channel
// moved in pieces of a protocol's size, 300 to 650 MB/s on machines of this kind.
func (b *bench) files(ctx context.Context) error {
	return b.running(ctx, func(sb *box, id string) error {
		err := b.own.raw(ctx, func(raw *rawChannel) error {
			return b.own.raw(ctx, func(other *rawChannel) error {
				mux, err := other.mux()
				if err != nil {
					return err
				}
				return b.transfers(ctx, sb, id, raw, mux)
			})
		})
		if err != nil {
			return err
		}
		return b.smallFiles(ctx, sb)
	})
}

// transfers measures all of them in turns.
func (b *bench) transfers(ctx context.Context, sb *box, id string, raw, mux *rawChannel) error {
	data := make([]byte, fileSize)
	for i := range data {
		data[i] = byte(i * 7)
	}
	const dir, name = "/workspace", "bench-file"
	var in, out, cat, produce, dUp, dDown direction
	steps := []step{
		{&in.raw, raw.take},
		{&in.mux, mux.take},
		{&in.file, func() error { return sb.upload(ctx, dir+"/"+name, data) }},
		{&in.alone, func() error {
			return sb.exec(ctx, "dd", "if=/dev/zero", "of=bench-dd", "bs=1M", fmt.Sprintf("count=%d", fileSize>>20))
		}},
		{&cat.file, func() error { return sb.swallow(ctx, data) }},
		{&out.raw, raw.give},
		{&out.mux, mux.give},
		{&out.file, func() error { return sb.download(ctx, dir+"/"+name) }},
		{&out.alone, func() error { return sb.exec(ctx, "dd", "if="+name, "of=/dev/null", "bs=1M") }},
		{&produce.file, func() error {
			return sb.stream(ctx, io.Discard, "dd", "if=/dev/zero", "bs=64k", fmt.Sprintf("count=%d", fileSize>>16), "status=none")
		}},
	}
	if b.docker != nil {
		steps = append(steps,
			step{&dUp.file, func() error { return b.docker.upload(ctx, id, dir, name, data) }},
			step{&dDown.file, func() error { return b.docker.download(ctx, id, dir+"/"+name) }})
	}
	for range b.n(10) {
		for _, s := range steps {
			began := time.Now()
			if err := s.do(); err != nil {
				return err
			}
			*s.to = append(*s.to, fileSize/1e6/time.Since(began).Seconds())
		}
	}
	b.addTransfers("into", "upload of 100 MiB", "a write there (dd)", in, dUp)
	b.report.add("into a command (cat >/dev/null)", "MB/s", cat.file, nil, "")
	b.addTransfers("out of", "download of 100 MiB", "a read there (dd)", out, dDown)
	b.report.add("out of a command (dd)", "MB/s", produce.file, nil, "")
	return nil
}

// direction is what was moved one way, in MB/s.
type direction struct {
	raw, mux samples // through the channels, without a file
	alone    samples // by a program in the sandbox, without a channel
	file     samples // through the channel, to or from a file
}

func (b *bench) addTransfers(way, name, alone string, d, docker direction) {
	r := b.report
	r.add("raw channel "+way+" a sandbox", "MB/s", d.raw, nil, "")
	r.add("guest channel "+way+" a sandbox, no file", "MB/s", d.mux, nil, "")
	r.add(name, "MB/s", d.file, docker.file, ">= 240")
	r.add("- of the raw channel", "share", over(d.file, d.raw), nil, ">= 0.8")
	r.add("- of the guest channel", "share", over(d.file, d.mux), nil, "")
	r.add("- of "+alone, "share", over(d.file, d.alone), nil, "")
}

// over is each sample of a as a part of that of b in the same round.
func over(a, b samples) (shares samples) {
	for i := range a {
		shares = append(shares, a[i]/b[i])
	}
	return shares
}

// smallFiles measures archives of 10,000 files beside tar in the same sandbox.
func (b *bench) smallFiles(ctx context.Context, sb *box) error {
	archive, err := manyFiles(10_000)
	if err != nil {
		return err
	}
	if err := sb.upload(ctx, "/workspace/in.tar", archive); err != nil {
		return err
	}
	var tarIn, in, tarOut, out samples
	for range b.n(10) {
		for _, s := range []step{
			{&tarIn, func() error { return sb.exec(ctx, "tar", "-x", "-f", "in.tar", "--one-top-level=plain") }},
			{&in, func() error {
				return sb.session.PutArchive(ctx, "/workspace/call", bytes.NewReader(archive), client.UnpackOptions{Parents: true})
			}},
			{&tarOut, func() error { return sb.exec(ctx, "tar", "-c", "-f", "out.tar", "plain") }},
			{&out, func() error {
				r, err := sb.session.GetArchive(ctx, "/workspace/plain", client.ArchiveOptions{})
				if err != nil {
					return err
				}
				defer r.Close()
				_, err = io.Copy(io.Discard, r)
				return err
			}},
		} {
			if err := timed(s.to, s.do); err != nil {
				return err
			}
		}
		if err := sb.exec(ctx, "rm", "-r", "plain", "call", "out.tar"); err != nil {
			return err
		}
	}
	r := b.report
	r.add("10,000 files in by one call", "ms", in, nil, "")
	r.add("- times tar in the sandbox", "x", over(in, tarIn), nil, "<= 3")
	r.add("10,000 files out by one call", "ms", out, nil, "")
	r.add("- times tar in the sandbox", "x", over(out, tarOut), nil, "<= 3")
	return nil
}

// manyFiles is an archive of n files of 1,000 bytes, 100 in each directory.
func manyFiles(n int) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := bytes.Repeat([]byte("x"), 1000)
	for i := range n {
		h := &tar.Header{Name: fmt.Sprintf("dir%02d/file%04d", i/100, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
