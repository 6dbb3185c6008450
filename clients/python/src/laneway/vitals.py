"""The load of the machine: processors, memory and disk. Values that cannot be read are left out."""

from __future__ import annotations

import shutil
from pathlib import Path


class Probe:
    """Reads the load of the machine from the kernel."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def read(self) -> dict[str, float]:
        """Percentages, as a heartbeat has them. The share of the processors is that since the last reading."""
        found: dict[str, float | None] = {"cpu_pct": self._cpu(), "mem_pct": _memory(), "disk_pct": _disk()}
        return {name: round(value, 1) for name, value in found.items() if value is not None}

    def _cpu(self) -> float | None:
        try:
            ticks = [int(tick) for tick in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        except (OSError, ValueError):
            return None
        total, idle = sum(ticks), ticks[3] + ticks[4]
        last, self._last = self._last, (total, idle)
        if last is None or total <= last[0]:
            return None
        return max(0.0, 100 * (1 - (idle - last[1]) / (total - last[0])))


def _memory() -> float | None:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(rows[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return 100 * (total - free) / total if total else None


def _disk() -> float | None:
    try:
        disk = shutil.disk_usage("/")
    except OSError:
        return None
    # As `df` counts: blocks that are reserved for root are neither used nor free.
    return 100 * disk.used / (disk.used + disk.free) if disk.used + disk.free else None
