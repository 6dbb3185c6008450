"""Makes one scenario for every step of a dialogue and every way to break a connection there.

The dialogue is data (`scenarios/dialogue/*.json`, a scenario without breaks). Each scenario made from it carries out the first
steps, breaks the connection, and then lets a correct server finish everything that was begun.
"""

from __future__ import annotations

from .frames import Json
from .script import Scenario

# Each way to break a connection, by name.
CUTS: dict[str, list[Json]] = {
    "reset": [{"cut": "reset"}],
    "end": [{"cut": "end"}],
    "half": [{"cut": "half"}],
    "close": [{"cut": {"close": 1001}}],
    "kill": [{"kill": {}}, {"pause": 100}, {"listen": {}}],
}


def cut_everywhere(dialogue: Scenario) -> list[Scenario]:
    """The scenarios of one dialogue."""
    made = []
    for number in range(1, len(dialogue.steps) + 1):
        verb = next(iter(dialogue.steps[number - 1]))
        for how, steps in CUTS.items():
            # What is open is finished, and a new task shows that the worker goes on.
            finish: Json = {"serve": {"tasks": [{"task": "t-after", "kind": "echo", "parameters": {"after": number}}]}}
            made.append(
                Scenario(
                    f"cut-{dialogue.name}-{number:02}-{verb}-{how}",
                    f"{dialogue.promise} The connection breaks after step {number} ({how}).",
                    dialogue.steps[:number] + steps + [finish],
                    dialogue.options,
                )
            )
    return made
