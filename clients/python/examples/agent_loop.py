"""Agents whose tool calls are jobs: each provider is called by one agent at a time, however many agents work.

    laneway serve
    python agent_loop.py

The limit belongs to the key `provider`, so it holds for all programs that use the server, and a call that fails is retried by
the server. The model is a stand-in that asks for two searches and then writes an answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from laneway import Client, Failure, Task, Worker


@dataclass
class ToolCall:
    """What a model asks for: a tool of a provider, with arguments."""

    tool: str
    provider: str
    arguments: dict[str, Any]


@dataclass
class Turn:
    """What a model answers: tool calls, or text when it is done."""

    calls: list[ToolCall] = field(default_factory=list)
    text: str | None = None


async def model(question: str, results: list[Any]) -> Turn:
    """A stand-in for a language model."""
    if not results:
        return Turn([ToolCall("search", provider, {"query": question}) for provider in ("acme", "globex")])
    return Turn(text=f"{question}: " + ", ".join(result["found"] for result in results))


async def run_agent(client: Client, name: str, question: str) -> str:
    """The loop of one agent: ask the model, queue its tool calls, give it the results, until it has an answer."""
    results: list[Any] = []
    for step in range(5):
        turn = await model(question, results)
        if turn.text is not None:
            return turn.text
        answer = await client.submit_many(
            {
                "kind": f"tool.{call.tool}",
                "payload": {"provider": call.provider, **call.arguments},
                "agent": name,
                "keys": {"provider": call.provider},
                "retry": {"retries_max": 3, "backoff": {"base": "10ms"}},
                # A step that is tried again after a crash of this program does not call the tools a second time.
                "idempotency_key": f"{name}-{step}-{number}",
            }
            for number, call in enumerate(turn.calls)
        )
        results = [await client.result(item.job) for item in answer.items if item.job is not None]
    raise RuntimeError(f"agent {name} has no answer after 5 steps")


@dataclass
class Tools:
    """The tools, with a count of the calls of each provider that run at once."""

    running: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    failed_once: bool = False

    async def search(self, task: Task) -> Any:
        provider, query = task.payload["provider"], task.payload["query"]
        self.running[provider] += 1
        self.most[provider] = max(self.most[provider], self.running[provider])
        try:
            if not self.failed_once:
                self.failed_once = True
                raise Failure("the provider is overloaded", code="overloaded")
            return {"found": f"{provider} knows {query}"}
        finally:
            self.running[provider] -= 1


async def main() -> None:
    tools = Tools()
    worker = Worker(name="tools", max_parallel=16)
    worker.handler("tool.search")(tools.search)
    working = asyncio.ensure_future(worker.serve())
    async with Client() as client:
        # The same is in the server's configuration file as [keys.provider] limit = 1.
        await client.patch_config({"keys": {"provider": {"limit": 1}}})
        agents = {f"agent-{number}": f"question {number}" for number in range(5)}
        running = [asyncio.ensure_future(run_agent(client, *agent)) for agent in agents.items()]
        for agent in running:
            print(await agent)
    print(f"at once: acme {tools.most['acme']}, globex {tools.most['globex']}")
    worker.drain()
    await working


if __name__ == "__main__":
    asyncio.run(main())
