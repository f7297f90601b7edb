"""Transfers files and directories, and shows how far they are."""

import tempfile
from pathlib import Path

from agentbox import Client


def progress(done: int, total: int | None) -> None:
    if total:
        print(f"\r{100 * done // total} %", end="", flush=True)


with Client() as client, client.create(memory="256m") as box, tempfile.TemporaryDirectory() as here:
    # Small files are bytes or texts.
    box.files.write("greet.py", "print('hello from the sandbox')\n")
    print(box.exec("python3 greet.py").stdout, end="")
    print(box.files.read("greet.py"))

    # Large ones are transferred in pieces.
    big = Path(here, "big.bin")
    big.write_bytes(bytes(8 << 20))
    box.files.upload(big, "big.bin", progress=progress)
    print(" uploaded")
    box.files.download("big.bin", Path(here, "copy.bin"), progress=progress)
    print(" downloaded", Path(here, "copy.bin").stat().st_size)

    # Directories go as archives.
    project = Path(here, "project")
    project.mkdir()
    Path(project, "input.txt").write_text("1 2 3\n")
    box.files.upload(project, "project")
    box.exec("wc -w <input.txt >report.txt", workdir="/workspace/project")
    box.files.download("project", Path(here, "result"))
    print(sorted(p.name for p in Path(here, "result").iterdir()))

    # Or as they come, here as a tar.gz.
    with open(Path(here, "project.tar.gz"), "wb") as archive:
        for piece in box.files.read_archive("project", gzip=True):
            archive.write(piece)

    for file in box.files.list(depth=2):
        print(f"{file.mode} {file.size:>8} {file.path}")
