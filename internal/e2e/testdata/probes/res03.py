# Takes memory and touches it, up to a size in MiB.
want, held = int(sys.argv[1]), []
print("begin", flush=True)
for i in range(0, want, 8):
    held.append(bytearray(os.urandom(4096) * 2048))
    print(i + 8, flush=True)
time.sleep(3600)
