"""An agent of the OpenAI Agents SDK with a shell and files in a sandbox (pip install openai-agents).

The sandbox is the context of the run, so one agent serves any number of runs at once.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python openai_agents.py "What is the 10th Fibonacci number?"
"""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, RunContextWrapper, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from agentbox import AgentboxError, AsyncBox, AsyncClient

INSTRUCTIONS = "You have a Linux machine of your own. Use its shell and files to do what you are asked, then answer."

#: Answers of the model, at most.
MAX_TURNS = 30
#: Characters of a result that the model gets to read, at most.
MAX_RESULT = 20_000


def failed(context: RunContextWrapper[AsyncBox], error: Exception) -> str:
    """What goes wrong in the sandbox is for the model to know; other errors end the run."""
    if isinstance(error, (AgentboxError, UnicodeDecodeError)):
        return f"error: {error}"
    raise error


@function_tool(failure_error_function=failed)
async def shell(context: RunContextWrapper[AsyncBox], command: str) -> str:
    """Run a shell command. The result has its exit code and what it wrote."""
    result = await context.context.exec(command, timeout=120)
    return f"exit code {result.exit_code}\n{result.output}"[:MAX_RESULT]


@function_tool(failure_error_function=failed)
async def write_file(context: RunContextWrapper[AsyncBox], path: str, content: str) -> str:
    """Write a text file, anew if it is there."""
    await context.context.files.write(path, content)
    return "written"


@function_tool(failure_error_function=failed)
async def read_file(context: RunContextWrapper[AsyncBox], path: str) -> str:
    """Read a text file."""
    return (await context.context.files.read_text(path))[:MAX_RESULT]


async def main() -> None:
    set_tracing_disabled(True)  # traces would go to the SDK's makers
    # AsyncOpenAI reads OPENAI_BASE_URL and OPENAI_API_KEY.
    model = OpenAIChatCompletionsModel(model=os.environ["OPENAI_MODEL"], openai_client=AsyncOpenAI())
    agent = Agent[AsyncBox](name="worker", instructions=INSTRUCTIONS, model=model, tools=[shell, write_file, read_file])
    async with AsyncClient() as client, await client.create(labels={"agent": "openai"}) as box:
        result = await Runner.run(agent, " ".join(sys.argv[1:]), context=box, max_turns=MAX_TURNS)
        print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
