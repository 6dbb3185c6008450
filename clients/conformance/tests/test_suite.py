#!/usr/bin/env python3
"""Tests of the conformance suite itself: a worker that conforms passes, and every known fault is caught."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "reference")]

from faults import FAULTS  # noqa: E402
from run import JOBS, all_scenarios, run_scenario, run_scenarios  # noqa: E402
from suite.chaos import run_chaos  # noqa: E402
from suite.concurrent import all_of  # noqa: E402
from suite.cuts import CUTS, cut_everywhere  # noqa: E402
from suite.frames import Schemas, mismatch  # noqa: E402
from suite.script import VERBS, Scenario, load  # noqa: E402
from suite.world import Command, Failed  # noqa: E402

SCHEMAS = Schemas()
WORKER = [sys.executable, str(HERE / "reference" / "worker.py")]
# How many connections the reference worker breaks here. The real SDKs break a thousand.
CONNECTIONS = 60
# How long a step of a faulty worker waits: most faults show as something that never comes.
FAULTY_STEP_MS_MAX = 6_000
FAULTY_JOBS = 24
# How long chaos waits for a result that a faulty worker dropped, in seconds.
FAULTY_CHAOS_SECONDS_MAX = 25


def reference(fault: str | None = None) -> Command:
    """The reference worker, with a fault or without."""
    return Command(fault or "reference", WORKER, {"LANEWAY_FAULT": fault} if fault else {})


class Workers(unittest.TestCase):
    """Workers that do everything right, and workers that do one thing wrong."""

    def test_a_worker_that_conforms_passes_and_every_fault_is_caught(self) -> None:
        async def everything() -> list[list[str]]:
            return await all_of([conforming(), unbroken(), faulty()])

        failed, lost, missed = asyncio.run(everything())
        self.assertEqual(failed, [], "scenarios that a conforming worker fails")
        self.assertEqual(lost, [], "what a conforming worker loses in chaos")
        self.assertEqual(missed, [], "faults that no scenario catches")

    def test_an_adapter_that_does_not_start_fails(self) -> None:
        scenario = next(one for one in all_scenarios() if one.name == "session-hello")
        failure = asyncio.run(run_scenario(Command("false", ["false"]), scenario, SCHEMAS))
        self.assertIn("the adapter ended with code 1", failure or "")


async def conforming() -> list[str]:
    """The scenarios that the reference worker fails. Of those made from the dialogue, every seventh: the SDKs run all of them."""
    made = [one for one in all_scenarios() if one.name.startswith("cut-")]
    written = [one for one in all_scenarios() if not one.name.startswith("cut-")]
    return sorted(await run_scenarios(reference(), written + made[::7], SCHEMAS, JOBS))


async def unbroken() -> list[str]:
    """What the reference worker loses over many broken connections."""
    try:
        tally = await run_chaos(reference(), SCHEMAS, CONNECTIONS, random.randrange(1 << 32), workers=6)
    except Failed as failed:
        return [str(failed)]
    return [] if tally.connections == CONNECTIONS and tally.copies > tally.tasks else ["no result was sent again"]


async def faulty() -> list[str]:
    """The faults that their scenarios do not catch."""
    scenarios = {one.name: one for one in all_scenarios()}
    free, missed = asyncio.Semaphore(FAULTY_JOBS), []

    async def check(fault: str, name: str) -> None:
        async with free:
            if name == "chaos":
                caught = await chaos_fails(reference(fault))
            else:
                failure = await run_scenario(reference(fault), scenarios[name], SCHEMAS, FAULTY_STEP_MS_MAX)
                caught = failure is not None
        if not caught:
            missed.append(f"{fault}: {name} passes")

    slow = sorted(FAULTS.items(), key=lambda item: not scenarios_slow(scenarios, item[1][1]))
    await all_of([check(fault, name) for fault, (_, name) in slow])
    return missed


def scenarios_slow(scenarios: dict[str, Scenario], name: str) -> bool:
    """True for scenarios that take long: they begin first."""
    return name == "chaos" or bool(scenarios[name].options.get("slow"))


async def chaos_fails(command: Command) -> bool:
    """True when chaos catches the fault."""
    try:
        await run_chaos(command, SCHEMAS, CONNECTIONS, 4711, workers=6, seconds_max=FAULTY_CHAOS_SECONDS_MAX)
    except Failed:
        return True
    return False


class Format(unittest.TestCase):
    """The scenarios as data."""

    def test_wrong_scenarios_are_rejected(self) -> None:
        good = {"name": "a", "promise": "b", "steps": [{"accept": {}}]}
        Scenario.read(good, "test")
        for bad in (
            {**good, "steps": []},
            {**good, "stepps": []},
            {**good, "options": {"tokken": "x"}},
            {**good, "steps": [{"acept": {}}]},
            {**good, "steps": [{"accept": {}, "greet": {}}]},
            {**good, "steps": [{"doubled": {"accept": {}}}]},
        ):
            with self.assertRaises(ValueError, msg=json.dumps(bad)):
                Scenario.read(bad, "test")

    def test_every_step_of_the_dialogue_is_cut_in_every_way(self) -> None:
        for dialogue in load(HERE / "scenarios" / "dialogues"):
            self.assertEqual(len(cut_everywhere(dialogue)), len(dialogue.steps) * len(CUTS))

    def test_every_verb_and_option_is_described(self) -> None:
        page = (HERE / "README.md").read_text()
        for verb in VERBS:
            self.assertIn(f'{{"{verb}":', page, f"README.md has no example of the step {verb}")

    def test_every_verb_is_used(self) -> None:
        used = json.dumps([one.steps for one in all_scenarios()])
        for verb in VERBS:
            self.assertIn(f'{{"{verb}":', used, f"no scenario uses the step {verb}")

    def test_patterns(self) -> None:
        frame = {"type": "result", "payload": {"result": {"a": 1}, "tags": ["x", "y"], "progress": 0.5}}
        for pattern in (
            {"type": "result"},
            {"payload": {"result": {"$exactly": {"a": 1}}}},
            {"payload": {"tags": {"$contains": ["y"]}, "progress": {"$about": 0.50001}}},
            {"type": {"$one_of": ["error", "result"]}, "corr": {"$absent": True}},
            {"payload": {"$any": True}},
            {"type": {"$has_text": "sul"}},
        ):
            self.assertIsNone(mismatch(pattern, frame), json.dumps(pattern))
        for pattern in (
            {"type": "error"},
            {"corr": "t-1"},
            {"payload": {"result": {"$exactly": {}}}},
            {"payload": {"tags": {"$contains": ["z"]}}},
            {"payload": {"progress": {"$about": 0.6}}},
            {"type": {"$absent": True}},
        ):
            self.assertIsNotNone(mismatch(pattern, frame), json.dumps(pattern))


if __name__ == "__main__":
    unittest.main(verbosity=1)
