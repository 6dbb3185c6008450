"""Scenarios: reading them from JSON, and carrying out their steps. README.md describes every step with an example."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import model
from .frames import Json, acknowledged_id, mismatch
from .model import Model
from .world import Failed, Received, World

# Keys that any step may have beside its verb.
COMMON = frozenset(["as", "within_ms", "since", "note"])
# The shortest waits before a frame is sent again, in seconds: 200 ms, 400 ms, … 5 s, shortened by a quarter.
RESEND_WAITS = (0.15, 0.3, 0.6, 1.2, 2.4, 3.75)
# How long the whole of one `serve` may take, in milliseconds.
SERVE_MS_MAX = 30_000


@dataclass
class Scenario:
    """One dialogue, as data."""

    name: str
    promise: str
    steps: list[Json]
    options: Json = field(default_factory=dict)

    @staticmethod
    def read(data: Json, source: str) -> Scenario:
        """Checks the form of a scenario."""
        unknown = set(data) - {"name", "promise", "steps", "options"}
        if unknown or not data.get("name") or not data.get("promise") or not data.get("steps"):
            raise ValueError(f"{source}: a scenario has name, promise and steps, and maybe options; unknown: {sorted(unknown)}")
        options = data.get("options", {})
        bad = set(options) - {"token", "token_file", "listening", "settles", "slow"}
        if bad:
            raise ValueError(f"{source}: {data['name']}: there is no option {sorted(bad)[0]!r}")
        for step in data["steps"]:
            check_step(step, f"{source}: {data['name']}")
        return Scenario(data["name"], data["promise"], data["steps"], options)


def check_step(step: Json, source: str) -> None:
    """A step has one verb. Steps inside of steps are checked, too."""
    verbs = [name for name in step if name not in COMMON]
    if len(verbs) != 1 or verbs[0] not in VERBS:
        raise ValueError(f"{source}: the step {json.dumps(step)} must have exactly one verb of: {', '.join(sorted(VERBS))}")
    inner = step[verbs[0]]
    if verbs[0] in WRAPPERS:
        for one in inner if isinstance(inner, list) else [inner]:
            check_step(one, source)
            if not set(one) & set(SENDS):
                raise ValueError(f"{source}: {verbs[0]} needs a step that sends a frame, not {json.dumps(one)}")


def load(folder: Path) -> list[Scenario]:
    """Every scenario of a folder. A file holds a list of scenarios."""
    scenarios = []
    for path in sorted(folder.glob("*.json")):
        for data in json.loads(path.read_text()):
            scenarios.append(Scenario.read(data, path.name))
    names = [one.name for one in scenarios]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"two scenarios are called {sorted(doubled)[0]!r}")
    return scenarios


class Stage:
    """Carries out the steps of one scenario."""

    def __init__(self, world: World, scenario: Scenario):
        self.world = world
        self.scenario = scenario
        self.names: dict[str, Any] = {}
        self.times: dict[str, float] = {}
        self.settles = 0
        self.last_cut: float | None = None

    async def run(self) -> None:
        """Carries out all steps, and what follows every scenario."""
        for number, step in enumerate(self.scenario.steps, 1):
            try:
                await self.step(step)
                if self.world.ledger.offences:
                    raise Failed(self.world.ledger.offences[0])
            except Failed as failed:
                raise Failed(f"step {number} {json.dumps(step)}: {failed}") from None
        world = self.world
        is_up = world.current is not None and world.current.is_open and world.exit_code is None
        if is_up and self.scenario.options.get("settles", True):
            await self.settle({})
        if world.exit_code is not None and not any("exit" in step for step in self.scenario.steps):
            raise Failed(f"the adapter ended with code {world.exit_code}")
        world.ledger.check_end()
        if world.ledger.offences:
            raise Failed(world.ledger.offences[0])

    async def step(self, step: Json) -> None:
        """Carries out one step."""
        verb = next(name for name in step if name not in COMMON)
        argument = self._resolve(step[verb])
        await getattr(self, f"do_{verb}")(argument, step)

    def _resolve(self, value: Any) -> Any:
        """Replaces `${dir}` by the scenario's folder, and `$name.field` by a field of a named frame."""
        if isinstance(value, dict):
            return {name: self._resolve(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._resolve(one) for one in value]
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"\$([a-z][\w-]*)((?:\.\w+)+)", value)
        if found:
            at = self._named(found[1])
            for part in found[2][1:].split("."):
                at = at[part]
            return at
        big = re.fullmatch(r"\$\{(text|wide):(\d+)\}", value)
        if big:
            return {"text": "x", "wide": "ü"}[big[1]] * int(big[2])
        return value.replace("${dir}", str(self.world.folder))

    def _named(self, name: str) -> Json:
        if name not in self.names:
            raise Failed(f"the scenario names no frame {name!r}")
        return self.names[name]

    def _until(self, step: Json, default_ms: int | None = None) -> float:
        since = self.times[step["since"]] if "since" in step else self.world.now()
        return since + step.get("within_ms", default_ms or self.world.step_ms_max) / 1000

    def _name(self, step: Json, frame: Json, at: float | None = None) -> None:
        if "as" in step:
            self.names[step["as"]] = frame
            self.times[step["as"]] = self.world.now() if at is None else at

    # Connections.

    async def do_accept(self, argument: Json, step: Json) -> None:
        world = self.world
        connection = await world.accept(self._until(step))
        authorization = connection.request.headers.get("Authorization")
        if world.token is not None and authorization != f"Bearer {world.token}":
            raise Failed(f"the header Authorization is {authorization!r}, not 'Bearer {world.token}'")
        if "after_ms" in argument and self.last_cut is not None:
            knock = next(at for at in world.knocks if at >= self.last_cut)
            waited = (knock - self.last_cut) * 1000
            if waited < argument["after_ms"]:
                raise Failed(f"the worker came back after {waited:.0f} ms; the backoff is at least {argument['after_ms']} ms")

    async def do_greet(self, argument: Json, step: Json) -> None:
        await self.do_expect({"type": "handshake"}, {"as": "handshake", **_timing(step)})
        token = self.names["handshake"]["payload"]["auth"].get("token")
        if token != self.world.token:
            raise Failed(f"the handshake has the token {token!r}, not {self.world.token!r}")
        await self.do_ack("handshake", {})
        await self.do_expect({"type": "register"}, {"as": "register", **_timing(step)})
        if "tasks" in argument:
            listed = sorted([task["task_id"], task["seq"]] for task in self.names["register"]["payload"].get("tasks") or [])
            if listed != sorted(argument["tasks"]):
                raise Failed(f"register lists the tasks {listed}, not {sorted(argument['tasks'])}")
        lease_ms = argument.get("lease_ms", self.world.lease_ms)
        await self.do_ack({"frame": "register", "info": f"lease_ms={lease_ms}"}, {})

    async def do_cut(self, argument: Any, step: Json) -> None:
        how, code = (argument, 1001) if isinstance(argument, str) else ("close", argument["close"])
        model.cut(self.world, how, code)
        self.last_cut = self.world.now()

    async def do_closed(self, argument: Json, step: Json) -> None:
        connection = self.world.current
        if connection is None:
            raise Failed("there is no connection")
        await self.world.until(lambda: None if connection.is_open else True, "the end of the connection", self._until(step))
        # When the worker closed it is not known exactly; not before the last frame of the server.
        self.last_cut = connection.last_sent

    async def do_kill(self, argument: Json, step: Json) -> None:
        self.world.note("server            killed")
        await self.world.listener.shut()
        if self.world.current is not None and self.world.current.is_open:
            self.world.current.reset()
        self.last_cut = self.world.now()

    async def do_listen(self, argument: Json, step: Json) -> None:
        self.world.note("server            listens")
        await self.world.listener.listen()

    async def do_reject(self, argument: Json, step: Json) -> None:
        times, listener = argument.get("times", 1), self.world.listener
        before = len(self.world.knocks)
        listener.rejections += [argument["status"]] * times
        # Only the wait: the connections themselves are the adapter's.
        await self.world.until(
            lambda: True if not listener.rejections and len(self.world.knocks) >= before + times else None,
            f"{times} rejected connections",
            self._until(step),
        )

    async def do_stall(self, argument: Json, step: Json) -> None:
        world, wanted = self.world, self.world.given_up + 1
        world.listener.stalls = 1
        await world.until(lambda: True if world.given_up >= wanted else None, "the end of a connection without an answer", self._until(step))

    async def do_ping(self, argument: Json, step: Json) -> None:
        connection = self.world.live()
        wanted = connection.pongs + 1
        connection.ping()
        await self.world.until(lambda: True if connection.pongs >= wanted else None, "the pong", self._until(step))

    # Frames of the adapter.

    async def do_expect(self, pattern: Json, step: Json) -> None:
        near: list[str] = []

        def look() -> Received | None:
            near.clear()
            for one in self.world.frames():
                if one.consumed:
                    continue
                found = mismatch(pattern, one.frame)
                if found is None:
                    return one
                if one.frame["type"] == pattern.get("type"):
                    near.append(found)
            return None

        try:
            one = await self.world.until(look, json.dumps(pattern), self._until(step))
        except Failed as failed:
            raise Failed(f"{failed}{f' (nearest: {near[-1]})' if near else ''}") from None
        one.consumed = True
        self._name(step, one.frame, one.at)
        if one.frame["type"] == "ack":
            self.world.ledger.taken(one.frame)

    async def do_acked(self, argument: Any, step: Json) -> None:
        name, times = (argument, 1) if isinstance(argument, str) else (argument["frame"], argument.get("times", 1))
        payload: Json = {"for": self._named(name)["id"], "ok": True}
        if isinstance(argument, dict) and "info" in argument:
            payload["info"] = argument["info"]
        for _ in range(times):
            await self.do_expect({"type": "ack", "payload": payload}, step)

    async def do_in_order(self, patterns: list[Json], step: Json) -> None:
        start = len(self.world.received)

        def look() -> bool | None:
            rest = list(patterns)
            for one in self.world.received[start:]:
                if rest and mismatch(rest[0], one.frame) is None:
                    rest.pop(0)
            return None if rest else True

        await self.world.until(look, f"{len(patterns)} frames in order", self._until(step))

    async def do_resends(self, argument: Json, step: Json) -> None:
        frame, elapsed = self._named(argument["frame"]), self.world.now() - self.times[argument["after"]]
        copies = sum(one.frame["id"] == frame["id"] for one in self.world.frames())
        allowed = 1 + sum(sum(RESEND_WAITS[: number + 1]) <= elapsed for number in range(len(RESEND_WAITS)))
        if copies > allowed:
            raise Failed(f"{copies} copies of {frame['id']} within {elapsed * 1000:.0f} ms; the resends allow {allowed}")

    async def do_logged(self, argument: Json, step: Json) -> None:
        wanted = argument["lines"]

        def look() -> bool | None:
            texts, indexes = [], {}
            for one in self.world.frames():
                if one.frame["type"] != "feedback" or one.frame.get("corr") != argument["task"]:
                    continue
                for chunk in one.frame["payload"].get("chunks") or []:
                    texts.append(chunk.get("text", "").rstrip("\n"))
                    indexes.setdefault(chunk["channel"], []).append(chunk.get("index"))
            for channel, found in indexes.items():
                if found != list(range(len(found))):
                    raise Failed(f"the chunks of the channel {channel} have the indexes {found}")
            return True if [text for text in texts if text in wanted] == wanted else None

        await self.world.until(look, f"the log lines {wanted}", self._until(step))

    async def do_absent(self, argument: Json, step: Json) -> None:
        if "for_ms" in argument:
            await self._quiet(argument["for_ms"])
        else:
            await self.settle({})
        for one in self.world.frames():
            if not one.consumed and mismatch(argument["frame"], one.frame) is None:
                raise Failed(f"the worker sent {json.dumps(one.frame)[:300]}")

    # Frames of the server.

    def built(self, step: Json) -> Json:
        """The frame of a step that sends one."""
        verb = next(name for name in step if name in SENDS)
        argument = self._resolve(step[verb])
        frame = getattr(self, f"build_{verb}")(argument)
        self._name(step, frame)
        return frame

    def build_send(self, argument: Json) -> Json:
        fields = {name: value for name, value in argument.items() if name not in ("type", "payload")}
        return self.world.build.frame(argument["type"], argument.get("payload", {}), **fields)

    def build_dispatch(self, argument: Json) -> Json:
        more = {name: argument[name] for name in ("constraints", "concurrency_key", "resource_refs", "traceparent", "tracestate") if name in argument}
        return self.world.build.dispatch(
            argument["task"],
            argument.get("seq", 1),
            argument.get("kind", "echo"),
            argument.get("parameters", {}),
            run_id=argument.get("run"),
            **more,
        )

    def build_cancel(self, argument: Json) -> Json:
        run = argument.get("run", argument["task"])
        return self.world.build.cancel(argument["task"], run, argument.get("seq"))

    def build_drain(self, argument: Json) -> Json:
        return self.world.build.frame("cmd.drain", argument, ack={"request": True})

    def build_error(self, argument: Json) -> Json:
        return self.world.build.error(argument["code"], argument.get("message"), argument.get("corr"), argument.get("seq"))

    def build_ack(self, argument: Any) -> Json:
        options = {"frame": argument} if isinstance(argument, str) else dict(argument)
        frame = self._named(options.pop("frame"))
        if self.world.ledger.is_outcome(frame):
            self.world.ledger.accepts(frame, acknowledged=False)
        return self.world.build.ack(frame, **options)

    def build_again(self, argument: str) -> Json:
        return self._named(argument)

    def _deliver(self, frame: Json, pieces: int = 1) -> None:
        self.world.send(frame, pieces=pieces)
        if frame["type"] == "ack":
            for attempt in self.world.ledger.attempts.values():
                if attempt.outcome is not None and attempt.outcome["id"] == acknowledged_id(frame):
                    attempt.acknowledged = True

    async def _do_send(self, argument: Any, step: Json) -> None:
        self._deliver(self.built(step))

    do_send = do_dispatch = do_cancel = do_drain = do_error = do_again = _do_send

    async def do_ack(self, argument: Any, step: Json) -> None:
        self._deliver(self.build_ack(argument))

    async def do_doubled(self, inner: Json, step: Json) -> None:
        frame = self.built(inner)
        self._deliver(frame)
        self._deliver(frame)

    async def do_lost(self, inner: Json, step: Json) -> None:
        self.world.lose(self.built(inner))

    async def do_reordered(self, inner: list[Json], step: Json) -> None:
        for frame in reversed([self.built(one) for one in inner]):
            self._deliver(frame)

    async def do_fragmented(self, inner: Json, step: Json) -> None:
        self._deliver(self.built(inner), pieces=5)

    async def do_raw(self, argument: Json, step: Json) -> None:
        connection = self.world.live()
        for _ in range(argument.get("times", 1)):
            if "binary" in argument:
                connection.send_binary(base64.b64decode(argument["binary"]))
            else:
                text = argument["text"] if isinstance(argument["text"], str) else json.dumps(argument["text"])
                self.world.note(f"scheduler [{connection.number}] raw  {text[:160]}")
                # An answer may name the id of a broken frame.
                connection.send_text(text)

    # The process, and time.

    async def do_line(self, wanted: str, step: Json) -> None:
        def look() -> tuple[int, float] | None:
            for number, (line, at) in enumerate(self.world.lines):
                if line == wanted and number not in self.world.lines_used:
                    return number, at
            return None

        until = self._until(step)
        number, at = await self.world.until(look, f"the line {wanted!r}", until)
        if at > until:
            raise Failed(f"the line {wanted!r} came {(at - until) * 1000:.0f} ms too late")
        self.world.lines_used.add(number)

    async def do_no_line(self, unwanted: str, step: Json) -> None:
        await self.settle({})
        for number, (line, _) in enumerate(self.world.lines):
            if line == unwanted and number not in self.world.lines_used:
                raise Failed(f"the adapter printed {unwanted!r}")

    async def do_signal(self, name: str, step: Json) -> None:
        self.world.signal(name)

    async def do_exit(self, code: int, step: Json) -> None:
        world, until = self.world, self._until(step)
        while world.exit_code is None:
            if world.now() > until:
                raise Failed(f"the adapter did not end; it should end with code {code}")
            await self._quiet(20)
        if world.exit_code != code:
            raise Failed(f"the adapter ended with code {world.exit_code}, not {code}")

    async def do_touch(self, name: str, step: Json) -> None:
        (self.world.folder / name).touch()

    async def do_token(self, token: str, step: Json) -> None:
        (self.world.folder / "token").write_text(token)
        self.world.token = token

    async def do_heartbeats(self, argument: str, step: Json) -> None:
        self.world.acknowledges_heartbeats = {"acknowledge": True, "ignore": False}[argument]

    async def do_pause(self, milliseconds: int, step: Json) -> None:
        await self._quiet(milliseconds)

    async def _quiet(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)
        if self.world.ledger.offences:
            raise Failed(self.world.ledger.offences[0])

    async def do_settle(self, argument: Json, step: Json) -> None:
        await self.settle(step)

    async def settle(self, step: Json) -> None:
        """Dispatches a task and waits for its outcome: whatever was sent before has been handled by then."""
        self.settles += 1
        name = f"settle-{self.settles}"
        world = self.world
        acknowledged = world.ledger.acknowledged()
        world.send(world.build.dispatch(name, 1, "echo", {"settle": self.settles}))
        pattern = {"type": {"$one_of": ["result", "error"]}, "corr": name, "seq": 1}
        await self.do_expect(pattern, {"as": name, **_timing(step)})
        await self.do_ack(name, {})
        if self.names[name]["type"] == "result":
            await self.do_line(f"end {name}", {})
        # Frames keep their order: the worker saw those acknowledgements before it saw this task.
        world.ledger.settle(acknowledged)

    async def do_serve(self, argument: Json, step: Json) -> None:
        server = Model(self.world)
        for one in argument.get("tasks", []):
            server.waiting.append(self.build_dispatch(one))
        await server.serve(self._until(step, SERVE_MS_MAX))


def _timing(step: Json) -> Json:
    return {name: step[name] for name in ("within_ms", "since") if name in step}


# Steps that send one frame, and steps that change how frames are sent.
SENDS = ("send", "dispatch", "cancel", "drain", "error", "ack", "again")
WRAPPERS = ("doubled", "lost", "reordered", "fragmented")
VERBS = frozenset(name[len("do_") :] for name in dir(Stage) if name.startswith("do_"))
