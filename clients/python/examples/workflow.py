"""A graph of steps, as in LangGraph, that becomes one durable run of the server.

    laneway serve
    python workflow.py

The graph is built here, and the server runs it: steps whose inputs are ready run at the same time, a failed step is retried,
and the run survives a restart of the server and of this program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from laneway import Client, Task, Worker, types


class Graph:
    """Steps by name. A step is a function of its inputs; an edge passes a result on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[str, Callable[..., Any]] = {}
        self._inputs: dict[str, dict[str, str]] = {}

    def step(self, **inputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Adds a function as a step. Each input names the step whose result it takes, or is a field of the run's input."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            name = function.__name__
            self._steps[name], self._inputs[name] = function, inputs
            return function

        return add

    def worker(self) -> Worker:
        """A worker that runs the steps."""
        worker = Worker(name=f"{self.name}-steps")
        for name, function in self._steps.items():
            worker.handler(f"{self.name}.{name}")(_handler(function))
        return worker

    def request(self, **values: Any) -> types.RunRequest:
        """The run for these values."""
        nodes: list[types.NodeRequest] = []
        for name, inputs in self._inputs.items():
            own = {argument: values[source] for argument, source in inputs.items() if source in values}
            edges = {argument: source for argument, source in inputs.items() if source in self._steps}
            bindings: list[types.NodeBinding] = [
                {"from": source, "source": "/results/value", "target": f"/parameters/{argument}"}
                for argument, source in edges.items()
            ]
            nodes.append(
                {
                    "node": name,
                    "job": {"kind": f"{self.name}.{name}", "payload": own, "retry": {"retries_max": 2}},
                    "depends_on": sorted(set(edges.values())),
                    "bindings": bindings,
                }
            )
        return {"name": self.name, "nodes": nodes}

    async def run(self, client: Client, **values: Any) -> dict[str, Any]:
        """Runs the graph, and returns the result of each step."""
        run = await client.wait_run(await client.submit_run(self.request(**values)))
        if run.error is not None:
            raise RuntimeError(f"step {run.error.node} failed: {run.error.message}")
        return {node.node: node.job.result["value"] for node in run.nodes}


def _handler(function: Callable[..., Any]) -> Callable[[Task], Any]:
    return lambda task: {"value": function(**task.payload)}


graph = Graph("research")


@graph.step(topic="topic")
def plan(topic: str) -> list[str]:
    return [f"{topic} today", f"{topic} tomorrow"]


@graph.step(questions="plan")
def search_web(questions: list[str]) -> str:
    return f"web: {questions[0]}"


@graph.step(questions="plan")
def search_papers(questions: list[str]) -> str:
    return f"papers: {questions[1]}"


@graph.step(first="search_web", second="search_papers")
def write(first: str, second: str) -> str:
    return f"{first}; {second}"


async def main() -> None:
    worker = graph.worker()
    working = asyncio.ensure_future(worker.serve())
    async with Client() as client:
        for name, result in (await graph.run(client, topic="queues")).items():
            print(f"{name}: {result}")
    worker.drain()
    await working


if __name__ == "__main__":
    asyncio.run(main())
