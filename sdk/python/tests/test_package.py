import importlib.metadata
import importlib.resources
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_has_types() -> None:
    assert importlib.resources.files("agentbox").joinpath("py.typed").is_file()


def test_has_the_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    package = importlib.metadata.distribution("agentbox")
    assert package.metadata.get_all("License-File") == ["LICENSE"] and package.read_text("licenses/LICENSE") == text
    of_the_project = ROOT.parents[1] / "LICENSE"
    assert not of_the_project.exists() or of_the_project.read_text() == text
