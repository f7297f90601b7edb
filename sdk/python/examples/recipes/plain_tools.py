"""An agent without a framework: tool calling over an OpenAI-compatible HTTP API.

The model gets a shell and files, in a sandbox that is made for the task and gone after it.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python plain_tools.py "What is the 10th Fibonacci number?"
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import httpx

from agentbox import AgentboxError, Box, Client

INSTRUCTIONS = "You have a Linux machine of your own. Use its shell and files to do what you are asked, then answer."

#: Answers of the model, at most.
MAX_TURNS = 30
#: Characters of a result that the model gets to read, at most.
MAX_RESULT = 20_000


def tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    """A function whose parameters are texts, as the model is told of it."""
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in parameters}, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool("shell", "Run a shell command. The result has its exit code and what it wrote.", "command"),
    tool("write_file", "Write a text file, anew if it is there.", "path", "content"),
    tool("read_file", "Read a text file.", "path"),
]


def use(box: Box, name: str, arguments: str) -> str:
    """Do what the model asks for. What goes wrong is for the model to know, too."""
    try:
        given = json.loads(arguments)
        if name == "shell":
            result = box.exec(given["command"], timeout=120)
            return f"exit code {result.exit_code}\n{result.output}"
        if name == "write_file":
            box.files.write(given["path"], given["content"])
            return "written"
        if name == "read_file":
            return box.files.read_text(given["path"])
        return f"error: there is no tool {name}"
    except (AgentboxError, KeyError, TypeError, ValueError) as e:
        return f"error: {e}"


def work(box: Box, task: str) -> str:
    """Let the model use the sandbox until it answers."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": task}]
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    with httpx.Client(headers=headers, timeout=600) as http:
        for _ in range(MAX_TURNS):
            request = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": TOOLS}
            response = http.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=request)
            response.raise_for_status()
            answer = response.json()["choices"][0]["message"]
            messages.append(answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                result = use(box, call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result[:MAX_RESULT]})
    raise RuntimeError(f"no answer in {MAX_TURNS} turns")


def main() -> None:
    with Client() as client, client.create(labels={"agent": "plain"}) as box:
        print(work(box, " ".join(sys.argv[1:])))


if __name__ == "__main__":
    main()
