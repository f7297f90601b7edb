# Many files, deep directories, long names, many extended attributes.
# Arguments: how many files, how deep, how many attributes.
count, deep, many = map(int, sys.argv[1:4])
top = "/workspace/many"
os.mkdir(top)
made, result = 0, "OK"
fds = []
for i in range(count):
    try:
        if i % 1000 == 0:
            for fd in fds:
                os.close(fd)
            os.mkdir("%s/d%d" % (top, i))
            fds = [os.open("%s/d%d" % (top, i), os.O_RDONLY)]
        os.close(os.open("f%d" % i, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fds[0]))
        made += 1
    except OSError as e:
        result = code(e.errno)
        break
say("files", made)
say("files result", result)

# One level at a time: the whole path would be too long.
os.mkdir("/workspace/deep")
os.chdir("/workspace/deep")
depth, result = 0, "OK"
while depth < deep:
    try:
        os.mkdir("d")
        os.chdir("d")
        depth += 1
    except OSError as e:
        result = code(e.errno)
        break
os.chdir("/")
say("depth", depth)
say("depth result", result)

os.mkdir("/workspace/long")
for i in range(100):
    name = ("%03d" % i) + "n" * 252
    os.close(os.open("/workspace/long/" + name, os.O_CREAT | os.O_WRONLY))
attempt("name of 256", os.open, "/workspace/long/" + "n" * 256, os.O_CREAT | os.O_WRONLY)
say("long names", len(os.listdir("/workspace/long")))

attrs, result = 0, "OK"
for i in range(many):
    try:
        os.setxattr("/workspace/long/" + "000" + "n" * 252, "user.a%d" % i, b"x" * 64)
        attrs += 1
    except OSError as e:
        result = code(e.errno)
        break
say("xattrs", attrs)
say("xattrs result", result)
end()
