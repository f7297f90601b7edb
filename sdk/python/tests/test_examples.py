"""Each example runs as it is printed, also the first one of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentbox import Client

ROOT = Path(__file__).resolve().parent.parent

#: What each says at least.
SAYS = {
    "create_run_destroy.py": r"\n42\n.*exit code 3.*\ngone: destroyed\n",
    "streaming.py": r"step 1\n.*step 3\n.*warning.*ended with 0",
    "files_and_archives.py": r"hello from the sandbox.*100 % uploaded.*100 % downloaded 8388608.*report\.txt",
    "background.py": r"tick 1\n.*attached again.*ended by signal 15",
    "terminal.py": r"24 80.*43 132.*ended with 0",
    "ports.py": r"hello through a port",
    "network_and_packages.py": r"pip: 0.*denied: example\.com:443",
    "async_fan_out.py": r"10 boxes.*\[0, 1, 4, 9, 16, 25, 36, 49, 64, 81\]",
}


def run(path: Path) -> str:
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, cwd=path.parent)
    assert out.returncode == 0, out.stdout + out.stderr
    return out.stdout


def test_all_are_here() -> None:
    assert sorted(SAYS) == sorted(p.name for p in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example(server: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text((ROOT / "examples" / name).read_text())
    said = run(path)
    assert re.search(SAYS[name], said, re.DOTALL), said
    assert os.listdir(tmp_path) == [name]


def readme() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_readme_first(server: str, tmp_path: Path) -> None:
    path = tmp_path / "first.py"
    path.write_text(readme()[0])
    assert run(path) == "42\n"


def test_readme_runs(server: str, tmp_path: Path) -> None:
    """All that the README shows of REST, but for what is asked of a package index."""
    (tmp_path / "README.md").write_text("# A project\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print(1)\n")
    with Client() as client:
        try:
            for n, text in enumerate(readme()):
                if "import Sandbox" in text:
                    continue  # gRPC has a test of its own
                path = tmp_path / f"{n}.py"
                path.write_text(re.sub(r".*packages\.pip.*\n", "", text))
                run(path)
        finally:
            for name in ("data", "data2"):
                client.volumes.remove(name)
