# Fills a tmpfs with bytes and then with files. Arguments: directory, stop in MiB.
d, stop = sys.argv[1], int(sys.argv[2]) << 20
fs = os.statvfs(d)
say("statvfs", fs.f_blocks * fs.f_frsize)
written, result, block = 0, "no end", os.urandom(1 << 20)
fd = os.open(d + "/fill", os.O_WRONLY | os.O_CREAT)
while written < stop:
    try:
        written += os.write(fd, block)
    except OSError as e:
        result = code(e.errno)
        break
os.close(fd)
say("written", written)
say("bytes", result)
os.unlink(d + "/fill")
n, result = 0, "no end"
while n < 200000:
    try:
        os.close(os.open("%s/n%d" % (d, n), os.O_WRONLY | os.O_CREAT))
        n += 1
    except OSError as e:
        result = code(e.errno)
        break
say("files", n)
say("inodes", result)
for i in range(n):
    os.unlink("%s/n%d" % (d, i))
attempt("again", write, "/dev/null", "")
end()
