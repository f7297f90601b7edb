# The host's emergency keys.
for key in "hsubco":
    attempt("sysrq " + key, write, "/proc/sysrq-trigger", key)
attempt("sysrq mask", write, "/proc/sys/kernel/sysrq", "1")
end()
