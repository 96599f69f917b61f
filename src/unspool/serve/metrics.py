"""Counters as Prometheus reads them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping


class Metrics:
    """What was counted since the server began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count something."""
        written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        with self._lock:
            self._counts[name, written] += amount

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, and what is the case just now, in the text format 0.0.4."""
        with self._lock:
            counts = sorted(self._counts.items())
        lines: list[str] = []
        for (name, labels), amount in counts:
            if not lines or not lines[-1].startswith(f"unspool_{name}_total"):
                lines.append(f"# TYPE unspool_{name}_total counter")
            lines.append(f"unspool_{name}_total{{{labels}}} {amount:g}")
        for gauge, value in sorted(gauges.items()):
            lines += [f"# TYPE unspool_{gauge} gauge", f"unspool_{gauge} {value:g}"]
        return "\n".join(lines) + "\n"
