# Descriptors that a command got from whoever started it. os.listdir would open
# one itself, so each number is asked for.
import fcntl

got = []
for fd in range(4096):
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
        got.append(fd)
    except OSError:
        pass
say("descriptors", " ".join(map(str, got)))
for fd in got:
    say("descriptor %d" % fd, os.readlink("/proc/self/fd/%d" % fd))
reached = []
for fd in range(3, 256):
    for path in ("../../etc/hostname", "../../../etc/hostname", "etc/hostname", "."):
        try:
            os.stat("/proc/self/fd/%d/%s" % (fd, path))
            reached.append("%d/%s" % (fd, path))
        except OSError:
            pass
say("reached", " ".join(reached) or "nothing")
say("cwd", os.getcwd())
end()
