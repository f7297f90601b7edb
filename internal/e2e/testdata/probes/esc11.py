# Namespaces, chroot and pivot_root. Arguments: a file of the host that must
# stay out of reach, and a name that must not come to the host.
secret, mark = sys.argv[1:]
ALL = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS


def look(where):
    """Where are we, and is the host's file here?"""
    try:
        print(open(secret).read())
        say(where + " secret", "OK")
    except OSError as e:
        say(where + " secret", code(e.errno))
    try:
        say(where + " hostname", open("/etc/hostname").read().strip())
    except OSError as e:
        say(where + " hostname", code(e.errno))


def unshare_all():
    if attempt("unshare all", unshare, ALL) is None:
        attempt("unshare user", unshare, CLONE_NEWUSER)
    become_root()
    attempt("sethostname", checked, libc.sethostname, mark.encode(), len(mark))
    attempt("mount tmpfs", mount, mark, "/mnt", "tmpfs")
    in_child(look, "unshared")


def double_chroot():
    os.makedirs("/tmp/jail", exist_ok=True)
    root = os.open("/", os.O_RDONLY)
    if attempt("chroot", os.chroot, "/tmp/jail") is not None:
        os.fchdir(root)
        for _ in range(40):
            os.chdir("..")
        attempt("chroot again", os.chroot, ".")
    look("double chroot")
    say("double chroot names", " ".join(sorted(os.listdir("/"))))


def pivot_root():
    os.makedirs("/tmp/new/old", exist_ok=True)
    attempt("mount for pivot", mount, mark, "/tmp/new", "tmpfs")
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    attempt("pivot_root", checked, libc.syscall, number, b"/tmp/new", b"/tmp/new/old")
    attempt("pivot_root .", checked, libc.syscall, number, b".", b".")
    look("pivot")


def setns(kind):
    try:
        fd = os.open("/proc/1/ns/" + kind, os.O_RDONLY)
    except OSError as e:
        say("setns " + kind, code(e.errno))
        return
    attempt("setns " + kind, checked, libc.setns, fd, 0)
    look("setns " + kind)


def nested():
    depth = 0
    while depth < 40:
        try:
            unshare(CLONE_NEWUSER | CLONE_NEWNS)
        except OSError:
            try:
                unshare(CLONE_NEWUSER)
            except OSError as e:
                say("nested end", code(e.errno))
                break
        become = ("0 0 1", "uid_map")
        try:
            write("/proc/self/" + become[1], become[0])
        except OSError:
            pass
        depth += 1
    say("nested depth", depth)
    look("nested")


look("plain")
in_child(unshare_all)
in_child(double_chroot)
in_child(pivot_root)
for kind in ("mnt", "user", "pid", "net", "ipc", "uts", "cgroup"):
    in_child(setns, kind)
in_child(nested)
attempt("proc root", os.open, "/proc/1/root/" + secret, os.O_RDONLY)
attempt("proc cwd", os.open, "/proc/1/cwd/" + secret, os.O_RDONLY)
end()
