# Orphans that nobody but the first process can reap. Arguments: how many, and
# how many of them at a time.
import mmap

want, per = int(sys.argv[1]), int(sys.argv[2])

# A fork of an interpreter costs tens of milliseconds. What is here costs one:
# clone(CLONE_VM|CLONE_VFORK|SIGCHLD), whose child is exit(0), as machine code
# that uses no stack.
MACHINE = {
    "x86_64": "bf11410000 31f6 31d2 4d31d2 4d31c0 b838000000 0f05 85c0 7401 c3 31ff b83c000000 0f05",
}.get(os.uname().machine)


def dead_child():
    if os.fork() == 0:
        os._exit(0)
    return 1


if MACHINE:
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(MACHINE))
    dead_child = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))


def mother():
    n = 0
    for _ in range(per):
        try:
            n += dead_child() > 0
        except OSError:
            break
    return n


def zombies():
    n = 0
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                n += open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                pass
    return n


made = most = 0
while made < want:
    pid = os.fork()
    if pid == 0:
        n = mother()
        if made == 0:
            say("zombies of one mother", zombies())
        os._exit(n)  # the children, dead and not reaped, become orphans
    got = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if got <= 0:
        time.sleep(0.05)
    made += max(got, 0)
say("made", made)
for _ in range(50):
    if zombies() == 0:
        break
    time.sleep(0.1)
say("zombies", zombies())
end()
