# Opens files until the kernel says no, and holds them.
import resource

say("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
if os.getuid():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 21, 1 << 21))
        say("raise", "OK")
    except (ValueError, OSError):
        say("raise", "refused")
path = "/tmp/f%d" % os.getuid()
n = 0
while True:
    try:
        os.open(path, os.O_RDWR | os.O_CREAT)
        n += 1
    except OSError as e:
        os.write(1, ("open: %s\nopened: %d\n" % (code(e.errno), n)).encode())
        break
time.sleep(float(sys.argv[1]))
end()
