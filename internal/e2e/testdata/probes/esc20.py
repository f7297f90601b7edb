# Kinds of sockets that reach into the kernel or out of the sandbox, and the
# sockets of the host. Arguments: the path of a socket, an address.
import socket

path, port = sys.argv[1], int(sys.argv[2].rsplit(":", 1)[1])
AF = dict(VSOCK=40, ALG=38, PACKET=17, XDP=44, NETLINK=16, KEY=15, BLUETOOTH=31, TIPC=30, RDS=21, INET=2, INET6=10, UNIX=1, SMC=43, CAN=29, QIPCRTR=42)
STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
for name, family, kind, protocol in (
    ("VSOCK stream", "VSOCK", STREAM, 0), ("VSOCK dgram", "VSOCK", DGRAM, 0),
    ("ALG", "ALG", SEQPACKET, 0), ("PACKET raw", "PACKET", RAW, 0x0300), ("PACKET dgram", "PACKET", DGRAM, 0x0300),
    ("XDP", "XDP", RAW, 0), ("NETLINK audit", "NETLINK", RAW, 9), ("NETLINK netfilter", "NETLINK", RAW, 12),
    ("KEY", "KEY", RAW, 2), ("BLUETOOTH", "BLUETOOTH", RAW, 1), ("TIPC", "TIPC", STREAM, 0), ("RDS", "RDS", SEQPACKET, 0),
    ("SMC", "SMC", STREAM, 0), ("CAN", "CAN", RAW, 1), ("QIPCRTR", "QIPCRTR", DGRAM, 0),
    ("INET raw", "INET", RAW, 255), ("INET icmp", "INET", RAW, 1), ("INET6 raw", "INET6", RAW, 255),
    # The probe itself works.
    ("works INET", "INET", STREAM, 0), ("works UNIX", "UNIX", STREAM, 0),
):
    fd = attempt(name, checked, libc.socket, AF[family], kind, protocol)
    if fd is not None:
        os.close(fd)


def connect(family, address):
    s = socket.socket(family)
    s.settimeout(5)
    s.connect(address)
    print(s.recv(100))


attempt("host unix", connect, socket.AF_UNIX, path)
attempt("host abstract", connect, socket.AF_UNIX, "\0" + path)
for host in ("127.0.0.1", "10.255.255.53", "169.254.169.254", "198.51.100.10"):
    attempt("host tcp " + host, connect, socket.AF_INET, (host, port))
end()
