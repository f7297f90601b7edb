# Opens files until the kernel says no, and holds them.
import resource

say("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
attempt("raise", resource.setrlimit, resource.RLIMIT_NOFILE, (1 << 21, 1 << 21)) if os.getuid() else None
n = 0
while True:
    try:
        os.open("/tmp/f", os.O_RDWR | os.O_CREAT)
        n += 1
    except OSError as e:
        os.write(1, ("open: %s\nopened: %d\n" % (code(e.errno), n)).encode())
        break
time.sleep(float(sys.argv[1]))
end()
