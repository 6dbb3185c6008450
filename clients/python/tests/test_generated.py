"""The generated modules are up to date and complete."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import laneway
from laneway.problems import BY_CODE

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = json.loads((ROOT.parent.parent / "docs/schema/openapi.json").read_text())


def test_the_generated_modules_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_operation_has_a_method_in_both_clients() -> None:
    by_hand = {"stream_events": "events", "get_artifact": "read_artifact"}
    missing = []
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            if name in ("connect_worker", "connect_v1_worker"):
                continue
            for client in (laneway.Client, laneway.SyncClient):
                if not hasattr(client, by_hand.get(name, name)):
                    missing.append((client.__name__, name))
    assert missing == []


def test_every_schema_has_a_type_and_every_code_an_exception() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert [name for name in schemas if not hasattr(laneway.types, name)] == []
    codes = schemas["Problem"]["properties"]["code"]["enum"]
    assert sorted(BY_CODE) == sorted(codes)
    assert BY_CODE["queue_full"].__name__ == "QueueFull"


def test_every_name_of_the_package_can_be_loaded() -> None:
    for name in laneway.__all__:
        assert getattr(laneway, name) is not None
    assert not hasattr(laneway, "nothing")
