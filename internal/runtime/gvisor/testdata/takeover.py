# Attacks of a process in the sandbox on the way by which a host takes the sandbox
# over. A line is "what: result". Argument: which attacks.
import array, collections, ctypes, errno, os, signal, socket, stat, sys, time

libc = ctypes.CDLL(None, use_errno=True)
CTL = "/run/.agentbox/ctl"
PIDFD_OPEN, PIDFD_GETFD = 434, 438
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def say(what, result):
    os.write(1, ("%s: %s\n" % (what, result)).encode())


def attempt(what, f, *args):
    try:
        r = f(*args)
    except OSError as e:
        say(what, errno.errorcode.get(e.errno, e.errno))
        return None
    say(what, "OK")
    return r


def checked(f, *args):
    ctypes.set_errno(0)
    r = f(*args)
    if r == -1:
        raise OSError(ctypes.get_errno(), "")
    return r


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(CTL)
    return s


def hand(fds):
    """Hands descriptors over, as the host's helper does."""
    s = connect()
    s.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    return s.recv(200)


def getfd(pid, fd):
    return checked(libc.syscall, PIDFD_GETFD, checked(libc.syscall, PIDFD_OPEN, pid, 0), fd, 0)


def trace(pid):
    checked(libc.ptrace, PTRACE_ATTACH, pid, None, None)
    os.waitpid(pid, 0x40000000)  # __WALL
    checked(libc.ptrace, PTRACE_DETACH, pid, None, None)


def memory(pid):
    """Reads the memory of a process; what is not mapped is no answer."""
    maps = open("/proc/%d/maps" % pid).readline()
    if not maps:
        raise OSError(errno.EACCES, "")
    with open("/proc/%d/mem" % pid, "rb", 0) as f:
        f.seek(int(maps.split("-")[0], 16))
        f.read(16)


def reach(who, pid, fd):
    attempt(who + " ptrace", trace, pid)
    attempt(who + " memory", memory, pid)
    attempt(who + " pidfd_getfd", getfd, pid, fd)


def a_connect():
    attempt("connect", connect)


def a_hand():
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        say("own socket", hand([theirs.fileno()]))
        theirs.close()
        ours.settimeout(1)
        try:
            say("heard", ours.recv(100))
        except OSError as e:
            say("heard", type(e).__name__)
    r, w = os.pipe()
    say("pipe", hand([r]))
    say("file", hand([os.open("/etc/passwd", os.O_RDONLY)]))
    pair = socket.socketpair()
    say("two sockets", hand([s.fileno() for s in pair]))
    say("nothing", hand([]))


def allow_tracing():
    try:
        open("/proc/sys/kernel/yama/ptrace_scope", "w").write("0")
    except OSError:
        pass


def a_reach():
    allow_tracing()
    reach("agent", 1, 3)
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    reach("child", child, 1)  # that the attacks work where they may
    os.kill(child, signal.SIGKILL)


def a_helper():
    """Falls upon each process that the host starts, until it is told to stop."""
    allow_tracing()
    seen, tally = 0, collections.Counter()
    say("ready", "OK")
    while not os.path.exists("/tmp/stop"):
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                parent = int(open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if pid == 1 or parent != 0:
                continue
            seen += 1
            for what, f, args in (("pidfd_getfd", getfd, (pid, 3)), ("memory", memory, (pid,)), ("ptrace", trace, (pid,))):
                try:
                    f(*args)
                    tally[what + " OK"] += 1
                except (OSError, ValueError) as e:
                    tally["%s %s" % (what, errno.errorcode.get(getattr(e, "errno", 0), e))] += 1
    say("seen", seen)
    for what, n in sorted(tally.items()):
        say("helper " + what, n)


def a_children():
    """Falls upon the agent's children, which have its files until they are programs."""
    allow_tracing()
    seen, stolen = set(), 0
    say("ready", "OK")
    while not os.path.exists("/tmp/stop"):
        for pid in set(map(int, filter(str.isdigit, os.listdir("/proc")))) - {1, os.getpid()}:
            seen.add(pid)
            try:
                fd = getfd(pid, 3)
            except OSError:
                continue
            stolen += stat.S_ISSOCK(os.fstat(fd).st_mode)
            os.close(fd)
    say("seen", len(seen))
    say("stolen", stolen)


def a_flood():
    """Holds all places for handovers, and as many again twice over."""
    held = [connect() for _ in range(12)]
    say("held", len(held))
    time.sleep(1000)


globals()["a_" + sys.argv[1]]()
say("end", "OK")
