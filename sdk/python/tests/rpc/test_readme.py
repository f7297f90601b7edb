"""What the README says of gRPC runs as it is printed, but for the server's address and the installation from the index."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_readme_of_grpc(server: str) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    section = text.partition("\n## gRPC\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 1
    program = re.sub(r".*pip_install.*\n", "", blocks[0].replace("http://localhost:50051", server))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^[0-9a-f-]{36} [0-9a-f]{12} True\nPython 3\..*\nexit \n.*one\ntwo\n 42\n$", done.stdout, re.DOTALL), done.stdout
