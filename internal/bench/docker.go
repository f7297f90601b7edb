package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// engineAPI is the version of Docker's API that is spoken; engines since 20.10
// know it.
const engineAPI = "/v1.41"

// dockerImage is the name of the same root file system in Docker.
const dockerImage = "agentbox-bench:latest"

// docker is a Docker engine, reached through its socket.
type docker struct{ http http.Client }

func dialDocker(socket string) *docker {
	return &docker{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// call does one request; what the engine answers goes to out: nil, an io.Writer,
// or something to decode JSON to.
func (d *docker) call(ctx context.Context, method, path string, body, out any) error {
	var in io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case io.Reader:
		in, kind = b, "application/x-tar"
	default:
		j, err := json.Marshal(b)
		if err != nil {
			return err
		}
		in = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+engineAPI+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	res, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) // whatever there is
		return fmt.Errorf("docker: %s %s: %s: %s", method, path, res.Status, text)
	}
	switch o := out.(type) {
	case nil:
		_, err = io.Copy(io.Discard, res.Body)
	case io.Writer:
		_, err = io.Copy(o, res.Body)
	default:
		err = json.NewDecoder(res.Body).Decode(out)
	}
	return err
}

// version says which engine this is.
func (d *docker) version(ctx context.Context) (string, error) {
	var info struct{ ServerVersion, Driver, DefaultRuntime, CgroupVersion string }
	err := d.call(ctx, "GET", "/info", nil, &info)
	return fmt.Sprintf("Docker %s, %s, %s, cgroup v%s", info.ServerVersion, info.DefaultRuntime, info.Driver, info.CgroupVersion), err
}

func (d *docker) importImage(ctx context.Context, rootfs io.Reader) error {
	return d.call(ctx, "POST", "/images/create?fromSrc=-&repo=agentbox-bench&tag=latest", rootfs, nil)
}

// create makes a container that idles, with the limits that sandboxes have.
func (d *docker) create(ctx context.Context) (id string, err error) {
	var out struct{ ID string }
	err = d.call(ctx, "POST", "/containers/create", map[string]any{
		"Image": dockerImage, "Cmd": []string{"/bin/sleep", "infinity"}, "User": "1000",
		"HostConfig": map[string]any{"NetworkMode": "none", "Memory": 512 << 20, "NanoCpus": 1e9, "PidsLimit": 256},
	}, &out)
	return out.ID, err
}

func (d *docker) start(ctx context.Context, id string) error {
	return d.call(ctx, "POST", "/containers/"+id+"/start", nil, nil)
}

func (d *docker) destroy(ctx context.Context, id string) error {
	return d.call(ctx, "DELETE", "/containers/"+id+"?force=1", nil, nil)
}

// exec runs a command that must succeed: make it, follow it, ask for its status.
func (d *docker) exec(ctx context.Context, id string, argv ...string) error {
	var made struct{ ID string }
	err := d.call(ctx, "POST", "/containers/"+id+"/exec", map[string]any{"AttachStdout": true, "AttachStderr": true, "Cmd": argv}, &made)
	if err != nil {
		return err
	}
	if err := d.call(ctx, "POST", "/exec/"+made.ID+"/start", map[string]any{}, nil); err != nil {
		return err
	}
	var ended struct{ ExitCode int }
	if err := d.call(ctx, "GET", "/exec/"+made.ID+"/json", nil, &ended); err != nil {
		return err
	}
	if ended.ExitCode != 0 {
		return fmt.Errorf("docker: %q ended with %d", argv, ended.ExitCode)
	}
	return nil
}

// upload puts a file into dir; download reads one.
func (d *docker) upload(ctx context.Context, id, dir, name string, data []byte) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return d.call(ctx, "PUT", "/containers/"+id+"/archive?path="+url.QueryEscape(dir), &b, nil)
}

func (d *docker) download(ctx context.Context, id, path string) error {
	return d.call(ctx, "GET", "/containers/"+id+"/archive?path="+url.QueryEscape(path), nil, io.Discard)
}

// shim returns the process that keeps a container: it is part of its price.
func (d *docker) shim(ctx context.Context, id string) (int, error) {
	var c struct{ State struct{ Pid int } }
	if err := d.call(ctx, "GET", "/containers/"+id+"/json", nil, &c); err != nil {
		return 0, err
	}
	return parent(strconv.Itoa(c.State.Pid)), nil
}

// stream follows a command that writes the time.
func (d *docker) stream(ctx context.Context, id string, to *samples, times int) error {
	var made struct{ ID string }
	err := d.call(ctx, "POST", "/containers/"+id+"/exec", map[string]any{"AttachStdout": true, "Cmd": ticker(times)}, &made)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(d.call(ctx, "POST", "/exec/"+made.ID+"/start", map[string]any{}, w)) }()
	defer r.Close()
	// Each piece has a head of 8 bytes before it.
	return delays(to, r, func(line string) (string, bool) { return line[min(8, len(line)):], len(line) > 8 })
}
