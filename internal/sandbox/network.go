package sandbox

import "time"

// NetworkMode is how much of the network a sandbox has.
type NetworkMode string

// Modes of a network.
const (
	NetworkNone      NetworkMode = "none"      // nothing at all
	NetworkAllowlist NetworkMode = "allowlist" // what Network.Allow names, and nothing else
	NetworkFull      NetworkMode = "full"      // every public name and address, on every port
)

// Network is what a sandbox may reach, as callers write it and as it is stored.
// Package policy says what it means.
type Network struct {
	// Mode; "" is NetworkAllowlist if there are entries and NetworkNone if there
	// are none.
	Mode NetworkMode
	// Allow has the entries of an allow-list:
	//
	//	python                       a preset of several hosts
	//	api.example.com              a host, on ports 80 and 443
	//	*.example.com                one or more labels below it, never example.com itself
	//	api.example.com:8443         a port of its own; *.example.com:8443 as well
	//	intranet.                    a host without a dot has one at its end
	//	192.0.2.1, [2001:db8::1]:22  an address, with or without a port
	//	192.0.2.0/24:5432            a range; [2001:db8::/32]:5432
	//	GET,HEAD https://api.example.com/v1/*
	//	                             requests: methods (* for all), a scheme or
	//	                             none, a host, a path or none; * at the end
	//	                             of the path stands for anything
	//
	// A range or an address is for those who ask for an address; a name that
	// resolves into it is not allowed by it. "localhost" is taken and leads
	// nowhere.
	Allow []string
	// Intercept has the hosts whose TLS the proxy ends itself, so that it sees the
	// requests: entries as of Allow, but no requests. It allows nothing. Hosts of
	// which only some requests over TLS are allowed are intercepted without it.
	Intercept []string
	// Resolver lets programs that take no proxy reach allowed names, too.
	Resolver bool
}

// On reports whether there is a network at all.
func (n *Network) On() bool {
	return n.Mode != NetworkNone && (n.Mode != "" || len(n.Allow) > 0)
}

// NetworkRequest is a host that a sandbox asked for and was denied.
type NetworkRequest struct {
	ID          string // unique while the sandbox runs
	Host        string
	Port        uint16
	First, Last time.Time
	Count       int
}

// OwnedNetworkRequest is one with the sandbox that asked, by its full id.
type OwnedNetworkRequest struct {
	NetworkRequest
	Owner, Sandbox string
}
