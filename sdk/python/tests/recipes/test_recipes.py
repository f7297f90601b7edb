"""The recipes for agent frameworks, with a model that plays a script."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import agentbox

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
TASK = "What is the 10th Fibonacci number? Find out by a program."
PROGRAM = "a, b = 0, 1\nfor _ in range(10):\n    a, b = b, a + b\nprint(a)\n"

#: What the model asks for, turn by turn, and what must have come back.
SCRIPT: list[tuple[str, dict[str, str], str]] = [
    ("read_file", {"path": "fib.py"}, "error: "),
    ("write_file", {"path": "src/fib.py", "content": PROGRAM}, "written"),
    ("shell", {"command": "cat src/fib.py | wc -l; python3 src/fib.py; exit 3"}, "exit code 3\n4\n55\n"),
    ("read_file", {"path": "src/fib.py"}, PROGRAM),
]


class Model(ThreadingHTTPServer):
    """A model on loopback that speaks OpenAI's chat completions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Turn)
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Turn(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request["authorization"] = self.headers["Authorization"]
        turn = len(self.server.requests)
        self.server.requests.append(request)
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if turn < len(SCRIPT):
            name, arguments, _ = SCRIPT[turn]
            call = {"id": f"call_{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            message["tool_calls"] = [call]
        else:  # the answer is what the program wrote
            message["content"] = f"It is {results(request)[2].split()[-1]}."
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": f"chat_{turn}", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200 if self.path == "/v1/chat/completions" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The server is silent."""


def results(request: dict[str, Any]) -> list[str]:
    """What the tools gave so far, in the order of their calls."""
    found = {m["tool_call_id"]: m["content"] for m in request["messages"] if m["role"] == "tool"}
    return [found[f"call_{turn}"] for turn in range(len(found))]


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.mark.parametrize(
    ("recipe", "needs"),
    [("plain_tools", ["httpx"]), ("openai_agents", ["agents"]), ("langchain_agent", ["langchain", "langchain_openai"])],
)
def test_recipe(client: agentbox.Client, model: Model, recipe: str, needs: list[str]) -> None:
    if missing := [name for name in needs if not importlib.util.find_spec(name)]:
        pytest.skip(f"{', '.join(missing)} is not installed: make test-recipes does that")
    env = os.environ | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "nothing-secret", "OPENAI_MODEL": "scripted"}
    done = subprocess.run([sys.executable, RECIPES / f"{recipe}.py", TASK], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is 55.\n"
    assert len(model.requests) == len(SCRIPT) + 1
    for request in model.requests:
        assert request["authorization"] == "Bearer nothing-secret" and request["model"] == "scripted"
        assert {t["function"]["name"] for t in request["tools"]} == {"shell", "write_file", "read_file"}
        assert any(m["role"] == "user" and m["content"] == TASK for m in request["messages"])
    for (_, _, wanted), result in zip(SCRIPT, results(model.requests[-1]), strict=True):
        assert result.startswith(wanted) if wanted == "error: " else result == wanted
    assert not [box for box in client.list(labels={"agent": recipe.split("_")[0]}) if box.status == "running"]
