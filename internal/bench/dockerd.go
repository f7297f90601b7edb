package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// daemon is a Docker engine of our own, apart from any that the machine has.
type daemon struct {
	*docker
	cmd *exec.Cmd
	dir string
}

// startDocker starts an engine in dir that touches neither the network nor the
// firewall. The error says why there is none.
func startDocker(ctx context.Context, dir string) (*daemon, error) {
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, errors.New("no dockerd on this machine: apt-get install docker.io")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a Docker engine needs root")
	}
	var errs error
	for _, driver := range []string{"overlay2", "vfs"} {
		d, err := startDriver(ctx, path, filepath.Join(dir, driver), driver)
		if err == nil {
			return d, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

func startDriver(ctx context.Context, path, dir, driver string) (*daemon, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	socket := filepath.Join(dir, "sock")
	cmd := exec.Command(path, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "run"),
		"--pidfile", filepath.Join(dir, "pid"), "--host", "unix://"+socket, "--storage-driver", driver,
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false", "--log-driver=none")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &daemon{docker: dialDocker(socket), cmd: cmd, dir: dir}
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if d.call(ctx, "GET", "/_ping", nil, nil) == nil {
			return d, nil
		}
		if syscall.Kill(cmd.Process.Pid, 0) != nil || state(cmd.Process.Pid) == "Z" {
			break
		}
	}
	text, _ := os.ReadFile(log.Name()) // for the message
	d.stop()
	return nil, fmt.Errorf("dockerd with %s did not come up: %s", driver, text[max(0, len(text)-500):])
}

// stop ends the engine and removes what it had.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = d.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = d.cmd.Process.Kill()
		<-done
	}
	if err := os.RemoveAll(d.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench: remove the Docker engine's files:", err)
	}
}
