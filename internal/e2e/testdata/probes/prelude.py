# What the probes share. A line is "what: result"; the last line is "end".
import ctypes, errno, os, stat, sys, threading, time, traceback

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000


def say(what, result):
    # One write, so that lines of several processes do not mix.
    os.write(1, ("%s: %s\n" % (what, str(result).replace("\n", "\\n"))).encode())


def code(e):
    return errno.errorcode.get(e, "errno %d" % e)


def attempt(what, f, *args):
    """Calls f and says OK, or the name of the error that it raised."""
    try:
        r = f(*args)
    except OSError as e:
        say(what, code(e.errno))
        return None
    say(what, "OK")
    return r


def checked(f, *args):
    """Calls a function of the C library; -1 becomes an OSError."""
    ctypes.set_errno(0)
    r = f(*args)
    if r == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r


def mount(source, target, kind, flags=0, data=None):
    return checked(libc.mount, source.encode(), target.encode(), kind.encode(), flags, data and data.encode())


def unshare(flags):
    return checked(libc.unshare, flags)


def become_root():
    """Maps root into the user namespace that was just made."""
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        try:
            with open("/proc/self/" + name, "w") as f:
                f.write(text)
        except OSError as e:
            say("become root by " + name, code(e.errno))


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def in_child(f, *args):
    """Runs f in a child, so that what it changes about itself does not last."""
    pid = os.fork()
    if pid == 0:
        try:
            f(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        sys.exit("a part of the probe failed: status %d" % status)


def end():
    sys.stdout.flush()
    os.write(1, b"end\n")

