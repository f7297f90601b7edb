"""A LangChain agent with a shell and files in a sandbox (pip install langchain langchain-openai).

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python langchain_agent.py "What is the 10th Fibonacci number?"
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI

from agentbox import AgentboxError, Box, Client

INSTRUCTIONS = "You have a Linux machine of your own. Use its shell and files to do what you are asked, then answer."

#: Steps of the agent, at most: an answer of the model and the use of tools are one each.
MAX_STEPS = 60
#: Characters of a result that the model gets to read, at most.
MAX_RESULT = 20_000


def told(work: Callable[..., str]) -> Callable[..., str]:
    """What goes wrong in the sandbox is for the model to know, too."""

    @wraps(work)
    def careful(*args: str, **named: str) -> str:
        try:
            return work(*args, **named)[:MAX_RESULT]
        except (AgentboxError, UnicodeDecodeError) as e:
            return f"error: {e}"

    return careful


def tools(box: Box) -> list[BaseTool]:
    """The tools of an agent whose machine is the sandbox."""

    @tool
    @told
    def shell(command: str) -> str:
        """Run a shell command. The result has its exit code and what it wrote."""
        result = box.exec(command, timeout=120)
        return f"exit code {result.exit_code}\n{result.output}"

    @tool
    @told
    def write_file(path: str, content: str) -> str:
        """Write a text file, anew if it is there."""
        box.files.write(path, content)
        return "written"

    @tool
    @told
    def read_file(path: str) -> str:
        """Read a text file."""
        return box.files.read_text(path)

    return [shell, write_file, read_file]


def main() -> None:
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"])  # reads OPENAI_BASE_URL and OPENAI_API_KEY
    with Client() as client, client.create(labels={"agent": "langchain"}) as box:
        agent = create_agent(model, tools(box), system_prompt=INSTRUCTIONS)
        task = {"role": "user", "content": " ".join(sys.argv[1:])}
        state = agent.invoke({"messages": [task]}, {"recursion_limit": MAX_STEPS})
        print(state["messages"][-1].content)


if __name__ == "__main__":
    main()
