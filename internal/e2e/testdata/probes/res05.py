# Fills each place that user code may write to. Arguments: a stop in MiB, and
# the directories.
stop, dirs = int(sys.argv[1]) << 20, sys.argv[2:]
block = os.urandom(1 << 20)
for d in dirs:
    fs = os.statvfs(d)
    say(d + " statvfs", fs.f_blocks * fs.f_frsize)
    path, written, result = d + "/fill", 0, "no end"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while written < stop:
        try:
            written += os.write(fd, block)
        except OSError as e:
            result = code(e.errno)
            break
    os.close(fd)
    fs = os.statvfs(d)
    say(d + " written", written)
    say(d + " result", result)
    say(d + " free at the end", fs.f_bavail * fs.f_frsize)
    os.unlink(path)
    with open(path, "wb") as f:  # there is room again
        f.write(block)
    os.unlink(path)
    say(d + " again", "OK")
end()
