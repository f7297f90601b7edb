# Block devices of the host: make the node, read it, mount it.
def read_device(path):
    fd = os.open(path, os.O_RDONLY)
    print(os.read(fd, 512).hex())


for major, minor in ((254, 0), (8, 0), (259, 0)):
    name = "%d:%d" % (major, minor)
    node = "/tmp/b%d" % major
    attempt("mknod " + name, os.mknod, node, 0o660 | stat.S_IFBLK, os.makedev(major, minor))
    attempt("read " + name, read_device, node)
    attempt("mount " + name, mount, node, "/mnt", "ext4")
attempt("mount /dev/vda", mount, "/dev/vda", "/mnt", "ext4")
attempt("read /dev/mem", read_device, "/dev/mem")
# The probe itself works: a device that everybody may read.
attempt("read /dev/zero", read_device, "/dev/zero")
end()
