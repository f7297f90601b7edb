"""Runs one unit of the compatibility suites inside a sandbox.

    driver.py UNIT SECONDS [OMIT...]

A unit is a test suite, such as cpython:test_json or libuv. What came of it goes to
standard output as one JSON object:

    {"passed": 180, "skipped": 2, "failed": {"test.test_json.…": "AssertionError: …"},
     "error": "", "seconds": 3.1, "log": "…"}

failed has the last words of each test that failed; error tells that the suite did
not come to its end within its seconds; log is the end of its output.
"""

import glob
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

SOURCES = "/opt/src"
JOBS = str(len(os.sched_getaffinity(0)))


class Suite:
    """The run of a unit: where it works, what it found."""

    def __init__(self, seconds, omit):
        self.omit, self.seconds = omit, seconds
        self.deadline = time.monotonic() + seconds
        self.dir = "/tmp/compat"
        self.passed, self.skipped, self.failed = 0, 0, {}
        self.error, self.log = "", ""
        os.makedirs(self.dir)

    def run(self, *argv, cwd=None, ok=None, env=None):
        """Runs a program until the deadline; its output goes to the log.

        A status that is not in ok is the suite's error (None: any will do)."""
        log = open(self.dir + "/.log", "w+b")
        child = subprocess.Popen(
            argv, cwd=cwd or self.dir, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, **(env or {})})
        try:
            child.wait(max(1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.error = "timed out in " + " ".join(argv)[:200]
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        log.seek(0)
        out = log.read().decode(errors="replace")
        log.close()
        self.log += out[-4000:]
        if not self.error and ok is not None and child.returncode not in ok:
            self.error = f"{' '.join(argv)[:200]} ended with {child.returncode}"
        return out

    def source(self, package):
        """A copy of a package's source, to build in."""
        shutil.copytree(f"{SOURCES}/{package}", f"{self.dir}/src", symlinks=True)
        return f"{self.dir}/src"

    def case(self, name, good, words=""):
        if good:
            self.passed += 1
        else:
            self.failed.setdefault(name, words.strip()[-300:])


def cpython(s, module):
    """A module of CPython's own regression tests."""
    argv = [sys.executable, "-m", "test", "-v", "--timeout", str(s.seconds), "--tempdir", s.dir]
    for omit in s.omit:
        argv += ["--ignore", omit]
    out = s.run(*argv, module, ok=(0, 2, 3, 4))  # 2: failures, 3: environment changed, 4: nothing was run
    if s.error:
        return
    report = r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \((\S+?)\)(?s:(.*?))(?=^={70}|^-{70}\nRan )"
    for name, where, words in re.findall(report, out, re.M):
        s.case(where if where.endswith("." + name) else f"{where}.{name}", False, words)
    total = re.search(r"^Total tests:(.*)", out, re.M)
    counts = dict(re.findall(r"(\w+)=([\d,]+)", total.group(1) if total else ""))
    run, s.skipped = (int(counts.get(k, "0").replace(",", "")) for k in ("run", "skipped"))
    s.passed = max(0, run - s.skipped - len(s.failed))
    if re.search(r"^Result: FAILURE", out, re.M) and not s.failed:
        s.error = "failed, and did not say which test"


def cmark(s):
    """C, built with CMake; tests in C and Python, run by CTest."""
    src = s.source("cmark")
    s.run("cmake", "-S", src, "-B", "build", ok=[0])
    s.error or s.run("make", "-C", "build", "-j", JOBS, ok=[0])
    if s.error:
        return
    out = s.run("ctest", "--test-dir", "build", ok=(0, 8))
    for name, verdict in re.findall(r"Test +#\d+: (\S+) \.+ *(.*)", out):
        s.case(name, verdict.startswith("Passed"))


def libuv(s):
    """C, an event loop: every kind of file, socket, process and thread call."""
    src = s.source("libuv1")
    s.run("cmake", "-S", src, "-B", "build", "-DBUILD_TESTING=ON", ok=[0])
    s.error or s.run("make", "-C", "build", "-j", JOBS, "uv_run_tests_a", ok=[0])
    if s.error:
        return
    runner = glob.glob(s.dir + "/build/**/uv_run_tests_a", recursive=True)[0]
    # Its own limit per test is meant for a quiet machine.
    out = s.run(runner, cwd=src, env={"UV_TEST_TIMEOUT_MULTIPLIER": "6"})
    for verdict, name, skip, words in re.findall(r"^(ok|not ok) +\d+ - (\S+)(.*)\n((?:#.*\n)*)", out, re.M):
        if "SKIP" in skip:
            s.skipped += 1
        else:
            s.case(name, verdict == "ok", words)


def mocha(s, package, *args):
    """A Node package, tested by Mocha."""
    src = s.source(package)
    s.run("mocha", "--reporter", "json", "--reporter-option", f"output={s.dir}/mocha.json", "--exit", *args, cwd=src)
    if s.error:
        return
    try:
        report = json.load(open(s.dir + "/mocha.json"))
    except (OSError, ValueError) as e:
        s.error = f"no report: {e}"
        return
    s.passed, s.skipped = len(report["passes"]), len(report["pending"])
    for f in report["failures"]:
        s.case(f["fullTitle"], False, f["err"].get("message", ""))


def git(s):
    """A repository of 1,000 commits, cloned over file://."""
    stream = []
    for n in range(1000):
        text = f"line {n}\n" * 20
        message = f"commit {n}"
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@example.com> {1700000000 + n} +0000\n"
            f"data {len(message)}\n{message}\nM 100644 inline dir{n % 10}/file{n % 100}\ndata {len(text)}\n{text}\n")
    open(s.dir + "/stream", "w").write("".join(stream))
    s.run("sh", "-euc", "git init -q -b main origin; git -C origin fast-import --quiet <stream; "
          "git -C origin reset -q --hard main", ok=[0])
    s.error or s.run("git", "clone", "-q", f"file://{s.dir}/origin", "copy", ok=[0])
    if s.error:
        return
    log = s.run("git", "-C", "copy", "rev-list", "--count", "HEAD", ok=[0])
    s.case("1000 commits arrive", log.strip() == "1000")
    s.run("git", "-C", "copy", "fsck", "--full", "--strict", ok=[0])
    s.case("every object is sound", not s.error)
    status = s.run("git", "-C", "copy", "status", "--porcelain", ok=[0])
    s.case("the work tree is clean", status == "" and len(glob.glob(s.dir + "/copy/dir*/file*")) == 100)
    s.run("sh", "-euc", "cd copy; git switch -qc topic; echo x >new; git add new; "
          "git -c user.name=A -c user.email=a@example.com commit -qm topic; git push -q origin topic; git gc -q", ok=[0])
    s.case("commit, push and gc", not s.error)


def sqlite(s):
    """100,000 rows: written, indexed, changed by two processes, checked."""
    path = s.dir + "/rows.db"
    db = sqlite3.connect(path)
    db.execute("pragma journal_mode=wal")
    db.execute("create table rows (id integer primary key, name text, value real)")
    with db:
        db.executemany("insert into rows values (?, ?, ?)", ((n, f"name {n % 997}", n / 7) for n in range(100_000)))
    with db:
        db.execute("create index by_name on rows (name)")
    s.case("100000 rows", db.execute("select count(*) from rows").fetchone() == (100_000,))
    s.case("index is used", db.execute("select count(*) from rows where name = 'name 5'").fetchone()[0] == 101)
    db.close()
    # The command line tool writes in two processes at once; locks keep them apart.
    half = "pragma busy_timeout=60000; " + "update rows set value = value + 1 where id %% 2 = %d;" * 5
    tools = [subprocess.Popen(["sqlite3", path, half % ((n,) * 5)], stdout=subprocess.DEVNULL) for n in (0, 1)]
    s.case("two writers", [t.wait() for t in tools] == [0, 0])
    s.case("integrity", s.run("sqlite3", path, "pragma integrity_check").strip() == "ok")
    total = s.run("sqlite3", path, "select cast(round(sum(value)) as integer) from rows").strip()
    s.case("every update counts", total == str(round(sum(n / 7 + 5 for n in range(100_000)))))
    s.run("sh", "-euc", "sqlite3 rows.db .dump | sqlite3 copy.db", ok=[0])
    s.case("dump and load", s.run("sqlite3", "copy.db", "select count(*) from rows").strip() == "100000")


SUITES = {
    "cmark": cmark,
    "libuv": libuv,
    "node-cors": lambda s: mocha(s, "node-cors", "--require", "test/support/env"),
    "git": git,
    "sqlite": sqlite,
}


def main(unit, seconds, *omit):
    began = time.monotonic()
    s = Suite(int(seconds), omit)
    family, _, module = unit.partition(":")
    try:
        if module:
            cpython(s, module)
        else:
            SUITES[family](s)
    except Exception as e:
        s.error = s.error or f"{type(e).__name__}: {e}"
    print(json.dumps({
        "passed": s.passed, "skipped": s.skipped, "failed": s.failed, "error": s.error,
        "seconds": round(time.monotonic() - began, 2), "log": s.log[-2000:]}))


main(*sys.argv[1:])
