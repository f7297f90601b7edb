# System calls that only the owner of a machine may make.
NUMBERS = {
    "x86_64": dict(init_module=175, finit_module=313, delete_module=176, kexec_load=246, iopl=172, ioperm=173,
                   swapon=167, acct=163, reboot=169, syslog=103, nfsservctl=180, uselib=134, getpid=39),
    "aarch64": dict(init_module=105, finit_module=273, delete_module=106, kexec_load=104,
                    swapon=224, acct=89, reboot=142, syslog=116, nfsservctl=42, getpid=172),
}[os.uname().machine]
buf = ctypes.create_string_buffer(4096)
zero = ctypes.c_char_p(b"")
exe = os.open("/bin/true", os.O_RDONLY)
ARGS = dict(
    init_module=(buf, 4096, zero), finit_module=(exe, zero, 0), delete_module=(b"ext4", 0), kexec_load=(0, 0, None, 0),
    iopl=(3,), ioperm=(0x80, 1, 1), swapon=(b"/tmp/swap", 0), acct=(b"/tmp/acct",),
    # RESTART with the right magic numbers.
    reboot=(ctypes.c_uint(0xFEE1DEAD), 672274793, 0x01234567, None),
    syslog=(5, None, 0), nfsservctl=(0, None, None), uselib=(b"/bin/true",), getpid=(),
)
for path in ("/tmp/swap", "/tmp/acct"):
    with open(path, "wb") as f:
        f.write(b"\0" * 65536)
say("machine", os.uname().machine)
for name, number in NUMBERS.items():
    attempt(name, checked, libc.syscall, number, *ARGS[name])
end()
