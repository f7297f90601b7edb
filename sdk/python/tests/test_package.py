import importlib.resources


def test_has_types() -> None:
    assert importlib.resources.files("agentbox").joinpath("py.typed").is_file()
