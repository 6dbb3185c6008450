"""Many broken connections: a correct server, workers, and a network that loses, doubles, delays and cuts.

Every worker is a process of its own with its own port. Everything random comes from one seed. At the end the network heals,
and every task must have exactly one outcome.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from .concurrent import all_of
from .frames import Json, Schemas
from .model import Model, Network
from .world import Command, Failed, World

# How many adapter processes share the connections. A worker waits 0.25 s to 0.5 s before it connects again, so one process alone
# would take minutes.
WORKERS = 25
# How many tasks there are for each connection.
TASKS_PER_CONNECTION = 2
# What the network does to frames, in percent.
LOST_PCT, DOUBLED_PCT, LATE_PCT = 5, 8, 8
# How long one worker may take for all its connections, in seconds: ample, for a loaded machine.
WORKER_SECONDS_MAX = 300


@dataclass
class Tally:
    """What came of a chaos run."""

    connections: int = 0
    tasks: int = 0
    copies: int = 0


async def run_chaos(
    command: Command,
    schemas: Schemas,
    connections: int,
    seed: int,
    workers: int = WORKERS,
    seconds_max: float = WORKER_SECONDS_MAX,
) -> Tally:
    """Breaks this many connections in total. Raises `Failed` when a result is lost or doubled, or a rule is broken."""
    workers = max(1, min(workers, connections))
    shares = [connections // workers + (number < connections % workers) for number in range(workers)]
    runs = [_worker(command, schemas, number, share, seed, seconds_max) for number, share in enumerate(shares)]
    tally = Tally()
    for done in await all_of(runs):
        tally.connections += done.connections
        tally.tasks += done.tasks
        tally.copies += done.copies
    return tally


async def _worker(command: Command, schemas: Schemas, number: int, connections: int, seed: int, seconds_max: float) -> Tally:
    rng = random.Random(f"{seed}-{number}")
    # Processes that start one after the other do not all compete for the processors.
    await asyncio.sleep(number * 0.05)
    world = World(command, schemas, worker=f"w-{number}")
    try:
        await world.listener.listen()
        await world.start(token=None, token_file=False)
        server = Model(world, Network(rng))
        server.waiting = [_task(world, rng, task) for task in range(connections * TASKS_PER_CONNECTION)]
        until = world.now() + seconds_max
        await _break_connections(world, server, connections, until)
        await _heal(world, server, until)
        return _check(world, connections)
    except Failed as failed:
        raise Failed(f"chaos, worker {number}, seed {seed}: {failed}\n{world.transcript()}") from None
    finally:
        await world.stop()


def _task(world: World, rng: random.Random, number: int) -> Json:
    name = f"t-{number}"
    kinds: list[tuple[str, Json]] = [
        ("echo", {"number": number, "text": "x" * rng.randrange(200)}),
        ("echo", {"number": number}),
        ("progress", {"steps": rng.randrange(1, 6)}),
        ("log", {"lines": [f"line {line}" for line in range(rng.randrange(1, 4))]}),
        ("fail", {"message": f"failure {number}"}),
        ("fatal", {"message": f"failure {number}"}),
        ("wait", {"release": str(world.folder / f"release-{number}")}),
        ("wait", {}),
    ]
    kind, parameters = rng.choice(kinds)
    return world.build.dispatch(name, 1, kind, parameters)


async def _break_connections(world: World, server: Model, connections: int, until: float) -> None:
    network, rng = server.network, server.network.rng
    network.lost_pct, network.doubled_pct, network.late_pct = LOST_PCT, DOUBLED_PCT, LATE_PCT
    early = False
    while server.cuts < connections:
        # A connection that breaks before its registration doubles the backoff: never two of those in a row.
        early = not early and rng.randrange(10) == 0
        network.frames_left = rng.randrange(1, 4) if early else rng.randrange(5, 30)
        if not server.waiting and not server.open():
            # Everything is done before the last connection broke: there is always something to lose.
            server.waiting.append(_task(world, rng, len(world.ledger.attempts)))
        if rng.randrange(20) == 0:
            await world.listener.shut()
            await asyncio.sleep(rng.random() * 0.2)
            await world.listener.listen()
        await server.serve_connection(until)


async def _heal(world: World, server: Model, until: float) -> None:
    """The network delivers everything. All tasks end, and the worker drains."""
    network = server.network
    network.lost_pct = network.doubled_pct = network.late_pct = 0
    network.frames_left = None
    await server.serve(until)
    world.signal("TERM")
    await server.serve_exit(until)
    if world.exit_code != 0:
        raise Failed(f"the adapter ended with code {world.exit_code} after SIGTERM")


def _check(world: World, connections: int) -> Tally:
    ledger = world.ledger
    ledger.check_end()
    for attempt in ledger.attempts.values():
        if attempt.outcome is None:
            ledger.offend(f"the result of {attempt.key} is lost")
    if ledger.offences:
        raise Failed(ledger.offences[0])
    copies = sum(attempt.copies for attempt in ledger.attempts.values())
    return Tally(connections, len(ledger.attempts), copies)
