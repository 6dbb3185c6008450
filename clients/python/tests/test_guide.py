"""Every command and every program of docs/guides/python.md, run as they are printed, in an environment that is empty before."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .conftest import Server

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guides/python.md"
# How long a command may take, in seconds.
PATIENCE = 120


@dataclass
class Step:
    """A file that the guide shows, or a command with the output that it shows."""

    line: int
    command: str
    file: str | None = None
    output: list[str] = field(default_factory=list)


def steps_of(text: str) -> Iterator[Step]:
    """The blocks of a page. A block in Python is the file that the sentence before it names."""
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[: block.start()].count("\n") + 2
        language, body = block.groups()
        if language == "python":
            named = re.search(r"In `([\w.]+)`:\n\n\Z", text[: block.start()])
            assert named, f"line {line}: the sentence before a program names its file"
            yield Step(line, body, named.group(1))
        elif language == "bash":
            yield from commands_of(line, body)


def commands_of(line: int, body: str) -> list[Step]:
    commands: list[Step] = []
    for number, text in enumerate(body.splitlines()):
        if text.startswith("$ "):
            commands.append(Step(line + number, text[2:]))
        else:
            commands[-1].output.append(text)
    return commands


def test_steps_are_found_with_their_outputs() -> None:
    page = "In `a.py`:\n\n```python\nx = 1\n```\n\n```bash\n$ one\nout\n$ two &\n```\n"
    found = [(step.line, step.command, step.file, step.output) for step in steps_of(page)]
    assert found == [(4, "x = 1\n", "a.py", []), (8, "one", None, ["out"]), (10, "two &", None, [])]


def test_every_command_of_the_guide_does_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "clients").symlink_to(ROOT / "clients")
    server = Server(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    background: list[subprocess.Popen[bytes]] = []
    steps = list(steps_of(GUIDE.read_text()))
    assert len(steps) > 12, "the search is broken"
    try:
        for step in steps:
            if step.file is not None:
                (home / step.file).write_text(step.command)
            elif step.command == "laneway serve &":
                server.start()
            elif step.command.endswith(" &"):
                command = f"exec {step.command[:-2]}"
                background.append(subprocess.Popen(["bash", "-c", command], cwd=home, env=_environment(server)))
            else:
                done = subprocess.run(
                    ["bash", "-c", step.command],
                    cwd=home,
                    env=_environment(server),
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                )
                assert done.returncode == 0, f"line {step.line}: {step.command}\n{done.stdout}{done.stderr}"
                if step.output:
                    assert done.stdout.splitlines() == step.output, f"line {step.line}: {step.command}"
        for worker in background:
            worker.terminate()
            assert worker.wait(30) == 0, "SIGTERM drains a worker"
    finally:
        for worker in background:
            worker.kill()
        server.stop()


def _environment(server: Server) -> dict[str, str]:
    return {**os.environ, "LANEWAY_URL": server.url, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
