package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

func TestParseTarget(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"example.com":                     "example.com:443",
		"Example.COM.":                    "example.com:443",
		"example.com:8080":                "example.com:8080",
		"example.com.:1":                  "example.com:1",
		"example.com:65535":               "example.com:65535",
		"intranet":                        "intranet:443",
		"_dmarc.r3---sn-x.example.com":    "_dmarc.r3---sn-x.example.com:443",
		"bücher.test":                     "xn--bcher-kva.test:443",
		"BÜCHER.Test.":                    "xn--bcher-kva.test:443",
		"xn--bcher-kva.test":              "xn--bcher-kva.test:443",
		"XN--BCHER-KVA.TEST":              "xn--bcher-kva.test:443",
		"bücher.xn--bcher-kva.test":       "xn--bcher-kva.xn--bcher-kva.test:443",
		"faß.test":                        "xn--fa-hia.test:443",
		"مثال.test":                       "xn--mgbh0fb.test:443",
		"192.0.2.1":                       "192.0.2.1:443",
		"192.0.2.1:80":                    "192.0.2.1:80",
		"[2001:DB8::1]":                   "[2001:db8::1]:443",
		"[2001:db8:0:0::1]:80":            "[2001:db8::1]:80",
		long + "." + long + "." + long:    long + "." + long + "." + long + ":443",
		"1e100.net":                       "1e100.net:443",
		"0xzz.example":                    "0xzz.example:443",
		"123.example":                     "123.example:443",
		"example.0xfg":                    "example.0xfg:443",
		"127.0.0.1.nip.example":           "127.0.0.1.nip.example:443",
		"a-b.c--d":                        "a-b.c--d:443",
		strings.Repeat("a.", 126) + "a":   strings.Repeat("a.", 126) + "a:443",
		strings.Repeat("a.", 126) + "a.":  strings.Repeat("a.", 126) + "a:443",
		strings.Repeat("a.", 126) + "a:9": strings.Repeat("a.", 126) + "a:9",
	} {
		got, err := policy.ParseTarget(in, 443)
		if err != nil {
			t.Errorf("ParseTarget(%q): %v", in, err)
		} else if got.String() != want {
			t.Errorf("ParseTarget(%q) = %s, want %s", in, got, want)
		}
	}
}

// TestNET14_ParseTarget: what two readers could take for two hosts is none.
func TestNET14_ParseTarget(t *testing.T) {
	for _, in := range []string{
		"", ".", "..", ":", ":80", "[", "[]", "[]:80", "]", "a..b", ".a", "a..", "-a.test", "a-.test", strings.Repeat("a", 64) + ".test",
		strings.Repeat("a.", 127) + "a", strings.Repeat("a", 5000), strings.Repeat("ü", 3000),
		"allowed.test@evil.test", "evil.test:443@allowed.test:443", "evil.test#@allowed.test", `evil.test\@allowed.test`, "http://evil.test:443/", "//evil.test",
		"allowed.test/", "allowed.test?", "allowed.test evil.test", "allowed.test\tevil.test", " allowed.test", "allowed.test ", "allowed.test\r\nHost: evil.test", "allowed.test\x00.evil.test",
		"allowed.test%00.evil.test", "allowed%2etest", "allowed.test,evil.test", "*.allowed.test", "*", "allowed.test;", "\xff.test", "allowed\xc0\xae.test",
		"allowed.test:", "allowed.test:0", "allowed.test:65536", "allowed.test:99999999999", "allowed.test:-1", "allowed.test:+443", "allowed.test:0443", "allowed.test:0x1bb", "allowed.test: 443", "allowed.test:443 ", "allowed.test:https", "allowed.test:４４３", "allowed.test:443:443", "allowed.test::443", "allowed.test:4_43",
		"::1", "2001:db8::1", "2001:db8::1:443", "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]443", "[2001:db8::1]:", "[2001:db8::1]:443:1", "[[2001:db8::1]]", "[fe80::1%eth0]", "[fe80::1%25eth0]", "[allowed.test]", "[allowed.test]:443", "[192.0.2.1]", "x[2001:db8::1]",
		"[::ffff:192.0.2.1]", "[::ffff:c000:201]:443",
		"\u212aelvin.test", "\u0130.test", "\u017f.test",
		"xn--.test", "xn--a.test", "xn--allowed-.test", "xn--bcher-kva-.test", "xn--BÜcher.test", "xn--0.test", "xn--www-hia.xn--99999999999",
	} {
		got, err := policy.ParseTarget(in, 443)
		if err == nil {
			t.Errorf("ParseTarget(%q) = %s, want an error", in, got)
			continue
		}
		var refusal *sandbox.Refusal
		if !errors.As(err, &refusal) || !errdefs.IsInvalidArgument(err) {
			t.Errorf("ParseTarget(%q): %#v is no refusal of the class of invalid arguments", in, err)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) || len(err.Error()) > 512 {
			t.Errorf("ParseTarget(%q): error %q is not fit to be shown", in, err)
		}
	}
	if got, err := policy.ParseTarget("allowed.test", 0); err == nil {
		t.Errorf("without a port at all: %s, want an error", got)
	}
	if got, err := policy.ParseTarget("allowed.test:22", 0); err != nil || got.Port != 22 {
		t.Errorf("with a port and no default: %s, %v", got, err)
	}
}

// TestNET05_Kinds: what looks like an address to any resolver is one in its usual
// form, or nothing.
func TestNET05_Kinds(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1": "address", "127.255.255.254": "address", "0.0.0.0": "address", "169.254.169.254": "address",
		"localhost": "name", "LOCALHOST": "name", "localhost.": "name", "foo.localhost": "name", "localhost.localdomain": "name", "loop.lab.test": "name", "metadata.lab.test": "name",
		"127.1": "", "127.0.1": "", "0": "", "2130706433": "", "017700000001": "", "0x7f000001": "", "0x7F.0.0.1": "", "0177.0.0.1": "", "127.0x0.0.1": "", "127.000.000.001": "", "127.0.0.1.": "", "127。0。0。1": "", "①②⑦.0.0.1": "", "127.0.0.1%20": "",
		"169.254.43518": "", "169.16689662": "", "2852039166": "", "0xa9fea9fe": "", "0xa9.0xfe.0xa9.0xfe": "", "0251.0376.0251.0376": "", "10.4325381": "", "172097541": "", "0x0a420005": "",
	} {
		for _, form := range []string{host, host + ":80"} {
			target, err := policy.ParseTarget(form, 443)
			got := "name"
			if err != nil {
				got = ""
			} else if target.Addr.IsValid() {
				got = "address"
			}
			if got != want {
				t.Errorf("%q is %q, want %q", form, got, want)
			}
		}
	}
}

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{"Allowed.Test.": "allowed.test:80", "2001:db8::1": "[2001:db8::1]:80", "192.0.2.1": "192.0.2.1:80"} {
		if got, err := policy.ParseHost(in, 80); err != nil || got.String() != want {
			t.Errorf("ParseHost(%q) = %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"allowed.test:80", "[2001:db8::1]", "2001:db8::1%1", "::ffff:192.0.2.1", "127.1", "", "a b"} {
		if got, err := policy.ParseHost(in, 80); err == nil {
			t.Errorf("ParseHost(%q) = %s, want an error", in, got)
		}
	}
	if got, err := policy.ParseHost("allowed.test", 0); err == nil {
		t.Errorf("port 0: %s, want an error", got)
	}
}

func TestAddrTarget(t *testing.T) {
	if got, err := policy.AddrTarget(netip.MustParseAddr("2001:db8::1"), 80); err != nil || got.String() != "[2001:db8::1]:80" || got.Host() != "2001:db8::1" {
		t.Errorf("got %s, %v", got, err)
	}
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("fe80::1%1")} {
		if got, err := policy.AddrTarget(a, 80); err == nil {
			t.Errorf("AddrTarget(%s) = %s, want an error", a, got)
		}
	}
	if got, err := policy.AddrTarget(netip.MustParseAddr("192.0.2.1"), 0); err == nil {
		t.Errorf("port 0: %s, want an error", got)
	}
}
