"""The wheel has everything that the package needs, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_a_wheel_is_built_and_works_from_its_files_alone(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "unpacked")
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    sources = {f"laneway/{path.name}" for path in (ROOT / "src/laneway").iterdir() if path.is_file()}
    assert {name for name in names if not name.startswith("laneway-")} == sources
    assert {"laneway/frames.json", "laneway/py.typed"} <= names
    needed = sorted(line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line)
    assert [line.split()[1].split("<")[0].split(">")[0] for line in needed] == ["httpx", "websockets"]
    program = "import laneway; print(laneway.__file__); laneway.Client(); laneway.Worker(); laneway.SyncClient().close()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    used = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert used.returncode == 0, used.stderr
    assert used.stdout.startswith(str(tmp_path))
