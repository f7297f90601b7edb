package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"agentbox/internal/config"
	"agentbox/internal/server"
)

// listeners are where a daemon can be reached.
type listeners struct{ main, local, metrics, grpc, proxy net.Listener }

func (d *daemon) listen() (l listeners, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.main, err = d.listenMain(); err != nil {
		return l, err
	}
	if l.local, err = server.ListenLocal(d.cfg.Socket); err != nil {
		return l, err
	}
	if l.grpc, err = d.listenGRPC(); err != nil {
		return l, err
	}
	if d.cfg.MetricsListen != "" {
		if l.metrics, err = net.Listen("tcp", d.cfg.MetricsListen); err != nil {
			return l, fmt.Errorf("listen on %s for metrics: %w", d.cfg.MetricsListen, err)
		}
	}
	if d.cfg.Egress.ProxyHost != "" {
		if l.proxy, err = d.listenProxy(); err != nil {
			return l, err
		}
		d.hooks.Log.Info("the egress proxy listens for sandboxes with a network of their own", "address", l.proxy.Addr().String(), "called", d.cfg.Egress.ProxyHost)
	}
	return l, nil
}

// listenProxy opens the port that sandboxes with a network of their own reach.
func (d *daemon) listenProxy() (net.Listener, error) {
	at := d.cfg.Egress.ProxyAddress()
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for the egress proxy: %w (another address: --egress-proxy-listen, another port: --egress-proxy-port)", at, err)
	}
	return l, nil
}

func (d *daemon) listenMain() (net.Listener, error) {
	l, err := net.Listen("tcp", d.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (another port: --listen)", d.cfg.Listen, err)
	}
	return l, nil
}

// addresses are those on which the server listens for all its doors.
func (d *daemon) addresses() []string {
	switch g := d.cfg.GRPC.Listen; g {
	case config.ListenNone:
		return []string{d.cfg.Listen}
	case config.ListenAuto:
		return []string{d.cfg.Listen, usualGRPC}
	default:
		return []string{d.cfg.Listen, g}
	}
}

// usualGRPC is where clients of gRPC look when nobody tells them.
const usualGRPC = "127.0.0.1:50051"

// listenGRPC opens the further address; nil: there is none. Nobody asked for the
// usual one: it must not keep a second daemon of this machine from starting.
func (d *daemon) listenGRPC() (net.Listener, error) {
	switch at := d.cfg.GRPC.Listen; at {
	case config.ListenNone:
		return nil, nil //nolint:nilnil // none is no error
	case config.ListenAuto:
		l, err := net.Listen("tcp", usualGRPC)
		if err != nil {
			d.hooks.Log.Warn("gRPC is served on the main port only", "error", err, "other address", "--grpc-listen")
			return nil, nil //nolint:nilnil // none is no error
		}
		return l, nil
	default:
		l, err := net.Listen("tcp", at)
		if err != nil {
			return nil, fmt.Errorf("listen on %s for gRPC: %w (another address, or none: --grpc-listen)", at, err)
		}
		return l, nil
	}
}

// tryAddress finds out before the long work that the server must not be reached
// there, or that the port is somebody else's.
func (d *daemon) tryAddress(context.Context) error {
	for _, at := range d.addresses() {
		if !d.cfg.NoAuth {
			break
		}
		addr, err := net.ResolveTCPAddr("tcp", at)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", at, err)
		}
		if err := server.CheckNoAuth(addr); err != nil {
			return err
		}
	}
	tries := []func() (net.Listener, error){d.listenMain}
	if d.cfg.GRPC.Listen != config.ListenAuto {
		tries = append(tries, d.listenGRPC)
	}
	if d.cfg.Egress.ProxyHost != "" {
		tries = append(tries, d.listenProxy)
	}
	for _, try := range tries {
		l, err := try()
		if err != nil {
			return err
		}
		if l == nil {
			continue // not wanted
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (l listeners) close() error {
	var err error
	for _, one := range []net.Listener{l.main, l.local, l.metrics, l.grpc, l.proxy} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return err
}
