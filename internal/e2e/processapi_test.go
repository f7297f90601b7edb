package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// The process API in real sandboxes, used by programs in them. The ids of the tests are
// those of its contract's golden vectors.

// apiUser is who uses the process API of a sandbox from within it.
type apiUser struct {
	t  testing.TB
	c  *Client
	id string
}

// insider is the session that the tests share.
var insider struct {
	mu sync.Mutex
	id string
}

// sharedInside is the sandbox of one session of the gRPC door, for a test that runs
// beside others.
func sharedInside(t *testing.T) *apiUser {
	t.Helper()
	t.Parallel()
	c := SharedDaemon(t).Admin()
	insider.mu.Lock()
	defer insider.mu.Unlock()
	if insider.id == "" {
		a, err := c.GRPC().CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		insider.id = a.GetSession().GetContainerId()
	}
	return &apiUser{t, c, insider.id}
}

// ask sends a request by curl and returns the answer as "code body".
func (i *apiUser) ask(method, route, body string, flags ...string) string {
	i.t.Helper()
	line := fmt.Sprintf(`printf %%s '%s' | curl -sS -m 100 -X %s --data-binary @- -w '\n%%{http_code}' %s http://127.0.0.1:2024%s`,
		strings.ReplaceAll(body, "'", `'\''`), method, strings.Join(flags, " "), route)
	out := i.c.Sh(i.id, line)
	at := strings.LastIndexByte(out, '\n')
	if at < 0 {
		i.t.Fatalf("%s %s: %q", method, route, out)
	}
	return out[at+1:] + " " + strings.TrimSpace(out[:at])
}

// want checks what a POST is answered with, as JSON.
func (i *apiUser) want(code int, want, route, body string) {
	i.t.Helper()
	got := i.ask("POST", route, body)
	status, text, _ := strings.Cut(got, " ")
	var g, w any
	if status != strconv.Itoa(code) || json.Unmarshal([]byte(text), &g) != nil || json.Unmarshal([]byte(want), &w) != nil || encode(i.t, g) != encode(i.t, w) {
		i.t.Errorf("%s %.200s: %.500s, want %d %s", route, body, got, code, want)
	}
}

// python runs a program in the sandbox that has function post(route, **fields).
func (i *apiUser) python(program string) string {
	i.t.Helper()
	return i.c.Sh(i.id, "python3 - <<'END'\n"+`
import http.client, json, socket, sys, threading, time
def post(route, **fields):
    c = http.client.HTTPConnection("127.0.0.1", 2024, timeout=100)
    c.request("POST", route, json.dumps(fields))
    a = c.getresponse()
    b = a.read()
    c.close()
    return json.loads(b)
`+program+"\nEND")
}

func TestV1Health(t *testing.T) {
	i := sharedInside(t)
	if got := i.ask("GET", "/health", ""); got != `200 {"status":"ok"}` {
		t.Error(got)
	}
	for request, want := range map[string]string{
		"GET /none": `404 {"error":"Not found"}`, "GET /exec": `405 {"error":"Method not allowed"}`, "POST /health": `405 {"error":"Method not allowed"}`,
	} {
		method, route, _ := strings.Cut(request, " ")
		if got := i.ask(method, route, ""); got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
}

func TestV2ExitCodeAndOutput(t *testing.T) {
	i := sharedInside(t)
	i.want(200, `{"exit_code":3,"stdout":"hi\n","stderr":"e\n","timed_out":false}`, "/exec", `{"command":"echo hi; echo e >&2; exit 3"}`)
	i.want(200, `{"exit_code":0,"stdout":"root\n/workspace\n","stderr":"","timed_out":false}`, "/exec", `{"command":"whoami; pwd; cat"}`)
}

func TestV3DeathBySignal(t *testing.T) {
	sharedInside(t).want(200, `{"exit_code":-9,"stdout":"","stderr":"","timed_out":false}`, "/exec", `{"command":"kill -9 $$"}`)
}

func TestV4NoWorkingDirectory(t *testing.T) {
	i := sharedInside(t)
	i.want(200, `{"exit_code":-1,"stdout":"","stderr":"[Errno 2] No such file or directory: '/nonexist'","timed_out":false}`, "/exec", `{"command":"pwd","workdir":"/nonexist"}`)
	i.want(200, `{"exit_code":0,"stdout":"/tmp\n","stderr":"","timed_out":false}`, "/exec", `{"command":"pwd","workdir":"/tmp"}`)
}

func TestV5OutputThatIsNoText(t *testing.T) {
	sharedInside(t).want(200, `{"exit_code":0,"stdout":"\ufffdx","stderr":"","timed_out":false}`, "/exec", `{"command":"printf '\\377x'"}`)
}

func TestV6TimeOut(t *testing.T) {
	i := sharedInside(t)
	began := time.Now()
	i.want(200, `{"exit_code":-1,"stdout":"","stderr":"Command timed out","timed_out":true}`, "/exec", `{"command":"sleep 60","timeout":1}`)
	Within(t, began, time.Second)
}

func TestV7TimeOutKeepsOutput(t *testing.T) {
	i := sharedInside(t)
	began := time.Now()
	i.want(200, `{"exit_code":-1,"stdout":"a\n","stderr":"Command timed out","timed_out":true}`, "/exec", `{"command":"echo a; sleep 60","timeout":1}`)
	Within(t, began, time.Second)
}

func TestV8ChildInTheBackground(t *testing.T) {
	i := sharedInside(t)
	began := time.Now()
	i.want(200, `{"exit_code":0,"stdout":"bg\n","stderr":"","timed_out":false}`, "/exec", `{"command":"sleep 60 & echo bg","timeout":59}`)
	Within(t, began, 0)
}

func TestV9NoCommand(t *testing.T) {
	i := sharedInside(t)
	for _, route := range []string{"/exec", "/exec/stream"} {
		for _, body := range []string{`{}`, `{"command":""}`} {
			i.want(400, `{"error":"Missing 'command' field"}`, route, body)
		}
	}
}

func TestV10NoJSON(t *testing.T) {
	i := sharedInside(t)
	for _, route := range []string{"/exec", "/exec/stream", "/file/write", "/file/read"} {
		i.want(400, `{"error":"Invalid JSON"}`, route, `{`)
	}
}

const written = `{"success":true}`

func TestV11WriteMakesParents(t *testing.T) {
	i := sharedInside(t)
	i.want(200, written, "/file/write", `{"path":"v11/a/b.txt","content":"x"}`)
	i.want(200, `{"success":true,"content":"x"}`, "/file/read", `{"path":"v11/a/b.txt"}`)
	i.want(200, `{"success":true,"content":"x"}`, "/file/read", `{"path":"/workspace/v11/a/b.txt"}`)
}

func TestV12Append(t *testing.T) {
	i := sharedInside(t)
	i.want(200, written, "/file/write", `{"path":"v12","content":"1\n","mode":"w"}`)
	i.want(200, written, "/file/write", `{"path":"v12","content":"2\n","mode":"a"}`)
	i.want(200, `{"success":true,"content":"1\n2\n"}`, "/file/read", `{"path":"v12"}`)
}

func TestV13WriteElsewhere(t *testing.T) {
	i := sharedInside(t)
	for _, path := range []string{"/etc/x", "../etc/x", "/mnt/user-data/uploads/x", "/workspace"} {
		code, want := 403, `{"error":"Path not allowed"}`
		if path == "/workspace" {
			code, want = 200, `{"success":false,"error":"[Errno 21] Is a directory: '/workspace'"}`
		}
		i.want(code, want, "/file/write", `{"path":"`+path+`","content":"x"}`)
	}
	i.want(200, written, "/file/write", `{"path":"/mnt/user-data/outputs/v13","content":"x"}`)
}

func TestV14ComponentsCount(t *testing.T) {
	i := sharedInside(t)
	i.want(403, `{"error":"Path not allowed"}`, "/file/write", `{"path":"/workspace_evil/x","content":"x"}`)
	i.want(200, `{"success":false,"error":"Path not allowed"}`, "/file/read", `{"path":"/mnt/user-data-evil/x"}`)
}

func TestV15LinksAreFollowedFirst(t *testing.T) {
	i := sharedInside(t)
	i.c.Sh(i.id, "cd /workspace && mkdir v15 && ln -s /etc/passwd v15/l && ln -s /etc v15/d && ln -s ../v15/f v15/good && echo x >v15/f")
	i.want(200, `{"success":false,"error":"Path not allowed"}`, "/file/read", `{"path":"v15/l"}`)
	i.want(200, `{"success":false,"error":"Path not allowed"}`, "/file/read", `{"path":"v15/d/passwd"}`)
	i.want(403, `{"error":"Path not allowed"}`, "/file/write", `{"path":"v15/d/x","content":"x"}`)
	i.want(200, `{"success":true,"content":"x\n"}`, "/file/read", `{"path":"v15/good"}`)
}

func TestV16NoFile(t *testing.T) {
	sharedInside(t).want(200, `{"success":false,"error":"File not found"}`, "/file/read", `{"path":"nope.txt"}`)
}

func TestV17ReadADirectory(t *testing.T) {
	i := sharedInside(t)
	i.want(200, `{"success":false,"error":"[Errno 21] Is a directory: '/workspace'"}`, "/file/read", `{"path":"/workspace"}`)
}

func TestV18ReadWhatIsNoText(t *testing.T) {
	i := sharedInside(t)
	i.c.Sh(i.id, `printf '\377x' >/workspace/v18`)
	i.want(200, `{"success":false,"error":"File is not valid UTF-8 text"}`, "/file/read", `{"path":"v18"}`)
}

func TestV19WriteMuch(t *testing.T) {
	i := sharedInside(t)
	got := i.python(`
text = "ä\n\"" * 500000
print(post("/file/write", path="v19", content=text), open("/workspace/v19").read() == text, post("/file/read", path="v19") == {"success": True, "content": text})`)
	if strings.TrimSpace(got) != "{'success': True} True True" {
		t.Errorf("got %.500s", got)
	}
}

func TestV20MuchOutput(t *testing.T) {
	i := sharedInside(t)
	got := i.python(`
a = post("/exec", command="head -c 3000000 /dev/zero | tr '\\0' x")
print(a["exit_code"], a["stdout"] == "x" * 3000000, a["stderr"], a["timed_out"])
a = post("/exec", command="head -c 12000000 /dev/zero | tr '\\0' x")
print(a["exit_code"], len(a["stdout"]), a["stdout"][-23:].strip())`)
	if want := "0 True  False\n0 10000023 ... [output truncated]\n"; got != want {
		t.Errorf("got %.500q, want %q", got, want)
	}
}

func TestV21Stream(t *testing.T) {
	i := sharedInside(t)
	got := i.ask("POST", "/exec/stream", `{"command":"echo a; echo b >&2; exit 4"}`, "-i", "-N")
	head, body, _ := strings.Cut(strings.ReplaceAll(got, "\r", ""), "\n\n")
	if !strings.Contains(head, "200") || !strings.Contains(head, "Content-Type: text/event-stream\n") || !strings.Contains(head, "Cache-Control: no-cache\n") {
		t.Errorf("the head is %q", head)
	}
	frames := strings.Split(strings.TrimSpace(body), "\n\n")
	want := []string{`data: {"type":"stdout","data":"a\n"}`, `data: {"type":"stderr","data":"b\n"}`, `data: {"type":"exit","exit_code":4}`}
	slices.Sort(frames[:max(len(frames)-1, 0)])
	slices.Reverse(frames[:max(len(frames)-1, 0)])
	if !slices.Equal(frames, want) {
		t.Errorf("the frames are %q", frames)
	}
	// Output comes when it is written, not at the end.
	got = i.python(`
post("/exec", command="mkfifo v21")
s = socket.create_connection(("127.0.0.1", 2024))
s.settimeout(100)
body = json.dumps({"command": "echo first; read x </workspace/v21; echo $x"})
s.sendall(("POST /exec/stream HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).encode())
b = b""
while b"first" not in b:
    b += s.recv(1000)
post("/exec", command="echo second >v21")
while p := s.recv(1000):
    b += p
print(b.count(b"first"), b.count(b"second"))`)
	if strings.TrimSpace(got) != "1 1" {
		t.Errorf("a stream that waits gives %q", got)
	}
}

// TestV22NoExitCodeIsStolen: each command has its own result, however many processes
// without a parent end meanwhile.
func TestV22NoExitCodeIsStolen(t *testing.T) {
	i := sharedInside(t)
	got := i.python(`
stop = threading.Event()
def orphans():
    while not stop.is_set():
        post("/exec", command="for i in 1 2 3 4 5; do (sleep 0.01 & exit 7 &) & done; exit 0")
codes, todo, lock = {}, list(range(400)), threading.Lock()
def work():
    while True:
        with lock:
            if not todo: return
            n = todo.pop()
        codes[n] = post("/exec", command="exit %d" % (n % 256), timeout=90)
noise = [threading.Thread(target=orphans) for _ in range(2)]
workers = [threading.Thread(target=work) for _ in range(40)]
for t in noise + workers: t.start()
for t in workers: t.join()
stop.set()
for t in noise: t.join()
wrong = {n: a for n, a in codes.items() if a != {"exit_code": n % 256, "stdout": "", "stderr": "", "timed_out": False}}
print(len(codes), wrong)`)
	if strings.TrimSpace(got) != "400 {}" {
		t.Errorf("got %.2000s", got)
	}
}
