"""The CPU quota of a container or service: how many processors its cgroups grant to a process.

A process above its quota is stopped until the next period, together with the thread for which its other
threads wait, so the compiled engine never uses more threads. It imports no numba: others ask, too.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

NO_QUOTA = sys.maxsize


@cache
def cpu_quota(mount: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Processors that the cgroups (v1 or v2) of this process grant, rounded down, at least 1."""
    quotas = [NO_QUOTA]
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                folder, names = mount, ["cpu.max"]
            elif "cpu" in controllers.split(","):
                folder, names = mount / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
            else:
                continue
            group = PurePosixPath(path)  # in a container, perhaps as its host names it: then only / exists
            quotas += [_quota(folder / str(it)[1:], names) for it in (group, *group.parents)]
    return max(1, min(quotas))


def _quota(group: Path, names: list[str]) -> int:
    with suppress(OSError, ValueError):  # no file, or "max"
        quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
        return quota // period if quota > 0 else NO_QUOTA
    return NO_QUOTA
