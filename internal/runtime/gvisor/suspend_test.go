package gvisor_test

import (
	"bytes"
	"testing"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// Processes and files go on after a restore, of a sandbox that was never
// adopted and of one that was.
func TestSuspend(t *testing.T) {
	for name, prepare := range map[string]func(*box){
		"fresh":    func(*box) {},
		"attached": func(b *box) { b.connect() },
		"reopened": func(b *box) {
			b.s.Close()
			b.ok(b.rt.Close())
			b.open()
			b.connect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.sh("echo kept >/root/file; echo too >/run/file")
			p, err := b.s.Start(b.ctx, "job", sandbox.Command{Shell: "while read x; do echo got $x; done", User: "root", Stdin: true, OnDisconnect: sandbox.Keep, Timeout: -1}, client.Output{})
			b.ok(err)
			if _, err := p.Stdin().Write([]byte("one\n")); err != nil {
				t.Fatal(err)
			}
			prepare(b)
			for range 2 {
				b.suspendAndResume()
				if got := b.sh("cat /root/file /run/file"); got != "kept\ntoo\n" {
					t.Errorf("files hold %q", got)
				}
			}
			// The command goes on where it was.
			var out bytes.Buffer
			p, err = b.s.Attach(b.ctx, "job", 0, 0, client.Output{Stdout: &out})
			b.ok(err)
			if _, err := p.Stdin().Write([]byte("two\n")); err != nil {
				t.Fatal(err)
			}
			b.ok(p.Stdin().Close())
			r, err := p.Wait(b.ctx)
			b.ok(err)
			if got := out.String(); r.ShellCode() != 0 || got != "got one\ngot two\n" {
				t.Errorf("the command ended with %d and printed %q", r.ShellCode(), got)
			}
		})
	}
}
