#!/usr/bin/env python3
"""Runs the conformance suite against adapters of worker SDKs.

    run.py --adapter rust=target/debug/examples/conformance_adapter
    run.py --adapter "python=.venv/bin/python -m laneway.conformance_adapter" --scenario 'cut-*'

README.md describes the adapter's contract and the scenarios.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import os
import random
import shlex
import sys
import time
from pathlib import Path

from suite.chaos import WORKERS, Tally, run_chaos
from suite.concurrent import all_of
from suite.cuts import cut_everywhere
from suite.frames import Schemas
from suite.script import Scenario, Stage, load
from suite.world import STEP_MS_MAX, Command, Failed, World

FOLDER = Path(__file__).resolve().parent / "scenarios"
# How many scenarios run at the same time. Most of them wait for the adapter's backoff.
JOBS = 12


def all_scenarios() -> list[Scenario]:
    """Every scenario: those that are written down, and those that are made from the dialogues."""
    made = [one for dialogue in load(FOLDER / "dialogues") for one in [dialogue, *cut_everywhere(dialogue)]]
    # Long ones first, so that nothing waits for them at the end.
    return sorted(load(FOLDER) + made, key=lambda one: not one.options.get("slow", False))


async def run_scenario(command: Command, scenario: Scenario, schemas: Schemas, step_ms_max: int = STEP_MS_MAX) -> str | None:
    """Runs one scenario. Returns what went wrong, or None."""
    world = World(command, schemas)
    world.step_ms_max = step_ms_max
    options = scenario.options
    try:
        if options.get("listening", True):
            await world.listener.listen()
        await world.start(options.get("token"), options.get("token_file", False))
        await Stage(world, scenario).run()
        return None
    except Failed as failed:
        return f"{failed}\n{world.transcript()}"
    finally:
        await world.stop()


async def run_scenarios(command: Command, scenarios: list[Scenario], schemas: Schemas, jobs: int) -> dict[str, str]:
    """Runs scenarios, several at a time. Returns the failures by name."""
    free, failures = asyncio.Semaphore(jobs), {}

    async def one(scenario: Scenario) -> None:
        async with free:
            failure = await run_scenario(command, scenario, schemas)
        if failure is not None:
            failures[scenario.name] = failure
            print(f"\nFAILED {command.name}: {scenario.name}\n  {scenario.promise}\n  {indent(failure)}", flush=True)

    await all_of([one(scenario) for scenario in scenarios])
    return failures


async def break_connections(command: Command, arguments: argparse.Namespace, schemas: Schemas) -> Tally | None:
    """Breaks connections at random. Returns None when something went wrong."""
    if not arguments.connections:
        return Tally()
    try:
        return await run_chaos(command, schemas, arguments.connections, arguments.seed, arguments.workers)
    except Failed as failed:
        print(f"\nFAILED {command.name}: chaos\n  {indent(str(failed))}", flush=True)
        return None


async def check(command: Command, arguments: argparse.Namespace, schemas: Schemas) -> bool:
    """Runs everything against one adapter, and prints one line about it."""
    began = time.monotonic()
    chosen = [one for one in all_scenarios() if fnmatch.fnmatch(one.name, arguments.scenario)]
    if not chosen and not arguments.connections:
        raise SystemExit(f"no scenario matches {arguments.scenario!r}; --list shows their names")
    # Both at the same time: they wait for backoffs more than they compute.
    scenarios = run_scenarios(command, chosen, schemas, arguments.jobs)
    failures, tally = await all_of([scenarios, break_connections(command, arguments, schemas)])
    chaos_failed = tally is None
    passed = not failures and not chaos_failed
    counts = f"{len(chosen) - len(failures)} of {len(chosen)} scenarios"
    if arguments.connections and tally is not None:
        counts += f", {tally.connections} broken connections with {tally.tasks} tasks: no result lost, none doubled"
    print(f"{'ok    ' if passed else 'FAILED'} {command.name}: {counts}, {time.monotonic() - began:.1f} s", flush=True)
    return passed


def indent(text: str) -> str:
    """Text below a heading."""
    return text.replace("\n", "\n  ")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", action="append", default=[], metavar="NAME=COMMAND", help="an adapter; may be repeated")
    parser.add_argument("--scenario", default="*", metavar="GLOB", help="only scenarios with such a name")
    parser.add_argument("--list", action="store_true", help="print the names and promises of all scenarios")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"scenarios at the same time (default: {JOBS})")
    connections = int(os.environ.get("LANEWAY_CONFORMANCE_CONNECTIONS", "1000"))
    parser.add_argument("--connections", type=int, default=connections, help="connections to break at random; 0: none (default: 1000)")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"processes that share those connections (default: {WORKERS})")
    seed = int(os.environ.get("LANEWAY_CONFORMANCE_SEED") or random.randrange(1 << 32))
    parser.add_argument("--seed", type=int, default=seed, help="repeats the draws of an earlier run")
    arguments = parser.parse_args()
    if arguments.scenario != "*" and not any(one.startswith("--connections") for one in sys.argv):
        arguments.connections = 0
    return arguments


async def main() -> int:
    """Runs the suite. The adapters are checked one after the other."""
    arguments = parse()
    if arguments.list:
        for scenario in all_scenarios():
            print(f"{scenario.name:<50} {scenario.promise}")
        return 0
    if not arguments.adapter:
        raise SystemExit("name an adapter: --adapter NAME=COMMAND")
    schemas, passed = Schemas(), True
    print(f"seed {arguments.seed}", flush=True)
    for adapter in arguments.adapter:
        name, _, command = adapter.partition("=")
        passed &= await check(Command(name, shlex.split(command)), arguments, schemas)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
