"""Runs ten sandboxes at once."""

import asyncio

from agentbox import AsyncClient


async def square(client: AsyncClient, n: int) -> int:
    async with await client.create(memory="160m") as box:
        result = await box.exec(f"python3 -c 'print({n}**2)'")
        return int(result.stdout)


async def main() -> None:
    async with AsyncClient() as client:
        squares = await asyncio.gather(*(square(client, n) for n in range(10)))
        print(f"{len(squares)} boxes: {squares}")


asyncio.run(main())
