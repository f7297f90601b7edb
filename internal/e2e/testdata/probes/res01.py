# Forks sleeping children until the kernel says no, as a sandbox may.
children = []
while len(children) < 20000:
    try:
        pid = os.fork()
    except OSError as e:
        say("fork", code(e.errno))
        break
    if pid == 0:
        time.sleep(3600)
        os._exit(0)
    children.append(pid)
say("children", len(children))
for pid in children:
    os.kill(pid, 9)
for pid in children:
    os.waitpid(pid, 0)
say("fork again", "OK" if os.fork() or os._exit(0) is None else "no")
end()
