# What a sandbox has no business with: each must fail, or do nothing outside.
import platform

PTRACE_ATTACH, SYS_PTRACE, SYS_REBOOT, SYS_KEXEC_LOAD = 16, 101, 169, 246
attempt("mount", mount, "t", "/mnt", "tmpfs")
attempt("bind", mount, "/etc", "/mnt", "", 4096)
attempt("ptrace", checked, libc.syscall, SYS_PTRACE, PTRACE_ATTACH, 1, 0, 0)
# The harmless command: whether Ctrl-Alt-Del restarts the machine.
attempt("reboot", checked, libc.syscall, SYS_REBOOT, 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0)
attempt("kexec_load", checked, libc.syscall, SYS_KEXEC_LOAD, 0, 0, 0, 0)


def unshared():
    if attempt("unshare", unshare, CLONE_NEWUSER | CLONE_NEWUTS) is not None:
        become_root()
        attempt("sethostname", checked, libc.sethostname, b"evil", 4)


in_child(unshared)
say("name", platform.node())
end()
