package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"agentbox/internal/server"
)

// listeners are where a daemon can be reached.
type listeners struct{ main, local, metrics, proxy net.Listener }

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

// tryAddress finds out before the long work that the server must not be reached
// there, or that the port is somebody else's.
func (d *daemon) tryAddress(context.Context) error {
	if d.cfg.NoAuth {
		addr, err := net.ResolveTCPAddr("tcp", d.cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", d.cfg.Listen, err)
		}
		if err := server.CheckNoAuth(addr); err != nil {
			return err
		}
	}
	tries := []func() (net.Listener, error){d.listenMain}
	if d.cfg.Egress.ProxyHost != "" {
		tries = append(tries, d.listenProxy)
	}
	for _, try := range tries {
		l, err := try()
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (l listeners) close() error {
	var err error
	for _, one := range []net.Listener{l.main, l.local, l.metrics, l.proxy} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return err
}
