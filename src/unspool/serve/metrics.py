"""Metrics in the format of Prometheus, and the log: ids, counters and a line per request."""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from unspool.serve.guard import App, Receive, Send
from unspool.serve.requests import field_warning

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
HISTOGRAMS: dict[str, tuple[float, ...]] = {
    "queue_seconds": SECONDS,
    "time_to_first_token_seconds": SECONDS,
    "time_between_tokens_seconds": (0.001, 0.0025, *SECONDS[:10]),
    "request_seconds": SECONDS,
    "request_prompt_tokens": TOKENS,
    "request_generated_tokens": TOKENS,
}
"""Name → the upper bounds of its buckets."""

Labels = str


def _labels(labels: Mapping[str, str]) -> Labels:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in labels.items()}
    return ",".join(f'{name}="{value}"' for name, value in sorted(escaped.items()))


class Histogram:
    """Counts per bucket, and the sum of the values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        """The histogram in the text format: counts of all values up to each bound."""
        total, comma = 0, "," if labels else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:g}"
        yield f"{name}_count{{{labels}}} {total}"


class Metrics:
    """All counters and histograms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._histograms: dict[tuple[str, Labels], Histogram] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, _labels(labels)] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        key = name, _labels(labels)
        with self._lock:
            if key not in self._histograms:
                self._histograms[key] = Histogram(HISTOGRAMS[name])
            self._histograms[key].add(value)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, histograms and these gauges, in the text format 0.0.4."""
        with self._lock:
            families: dict[str, list[str]] = {}
            for (name, labels), amount in sorted(self._counts.items()):
                lines = families.setdefault(f"unspool_{name}_total counter", [])
                lines.append(f"unspool_{name}_total{{{labels}}} {amount:g}")
            for (name, labels), histogram in sorted(self._histograms.items()):
                families.setdefault(f"unspool_{name} histogram", []).extend(
                    histogram.lines(f"unspool_{name}", labels)
                )
        for gauge, value in sorted(gauges.items()):
            families[f"unspool_{gauge} gauge"] = [f"unspool_{gauge} {value:g}"]
        return "".join(
            f"# TYPE {family}\n" + "".join(f"{line}\n" for line in lines)
            for family, lines in families.items()
        )


@dataclass
class RequestRecord:
    """Facts about a request for the log and the metrics."""

    id: str = ""
    owner: str = ""
    """Name of its API key, or "" without keys."""
    model: str = ""
    """The served model; a name that a client invents never becomes a label."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens of the prefix cache; known at the end."""
    generated_tokens: int = 0
    warnings: list[str] = field(default_factory=list)
    """Paths of ignored fields."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds of its phases: queue, first_token."""
    began: float = field(default_factory=time.monotonic)
    _last: dict[Any, float] = field(default_factory=dict, repr=False)

    def count_tokens(self, metrics: Metrics, key: Any, tokens: int) -> None:
        """Count new tokens of the text `key`, and the time since those before them."""
        now = time.monotonic()
        if not self.generated_tokens:
            self.times["first_token"] = now - self.began
            metrics.observe("time_to_first_token_seconds", now - self.began, model=self.model)
        elif key in self._last:
            gap = (now - self._last[key]) / tokens
            metrics.observe("time_between_tokens_seconds", gap, model=self.model)
        self._last[key] = now
        self.generated_tokens += tokens
        metrics.add("generated_tokens", tokens, model=self.model)


log = logging.getLogger("unspool.serve.access")
CLIENT_ID = re.compile(rb"[\w.:-]{1,64}")
"""The ids that a client may choose for its requests."""


class RequestLog:
    """Records every request. `is_json` writes one JSON object per line instead of text."""

    def __init__(self, app: App, metrics: Metrics, *, is_json: bool = False) -> None:
        self.app, self._metrics, self._is_json = app, metrics, is_json

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        record = RequestRecord(given.decode() if CLIENT_ID.fullmatch(given) else secrets.token_hex(12))
        scope.setdefault("state", {})["record"] = record
        status = 499  # as nginx: the client left before a response

        async def recording_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", record.id.encode())]
                if record.warnings:
                    headers.append((b"warning", field_warning(record.warnings).encode()))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, recording_send)
        finally:
            self._finish(scope, record, status)

    def _finish(self, scope: MutableMapping[str, Any], record: RequestRecord, status: int) -> None:
        # The pattern of the route: a path that a client invents must not become a label.
        route = getattr(scope.get("route"), "path", "unknown")
        seconds = time.monotonic() - record.began
        self._metrics.add("requests", path=route, status=str(status), model=record.model)
        if record.prompt_tokens:
            self._metrics.observe("request_seconds", seconds, model=record.model)
            self._metrics.observe("request_prompt_tokens", record.prompt_tokens, model=record.model)
            self._metrics.observe("request_generated_tokens", record.generated_tokens, model=record.model)
            self._metrics.add("prompt_tokens", record.prompt_tokens, model=record.model)
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": record.id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "seconds": round(seconds, 4),
            "key": record.owner,
            "model": record.model,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generated_tokens": record.generated_tokens,
            **{f"{name}_seconds": round(value, 4) for name, value in record.times.items()},
            "ignored": record.warnings[:10],
        }
        known = {name: value for name, value in fields.items() if value not in ("", 0, [])}
        if self._is_json:
            log.info(json.dumps(known))
        else:
            log.info(" ".join(f"{name}={value!r}" for name, value in known.items()))


def record_of(request: Any) -> RequestRecord:
    """The record of a request; a new one if there is no log."""
    state = {} if request is None else request.scope.get("state", {})
    record: RequestRecord = state.get("record") or RequestRecord()
    return record
