"""An engine started in a process of its own, and what the start has cost."""

from __future__ import annotations

import sys

from peers.lineup import Contender
from peers.process import EngineProcess
from peers.tables import Start
from peers.work import Work

TEXT = 32
"""Tokens after which memory is looked at."""
MEGABYTES = 512
"""Of the array that bandwidth is measured with: far more than any cache holds."""


def start(contender: Contender, threads: int, prompt: list[int]) -> tuple[EngineProcess, Start, Start | None]:
    """The engine, once it has written something, what that took, and what it took the time before.

    There is a time before where an engine keeps what it prepares. An EngineFailedError tells why it could not.
    """
    before = None
    if contender.prepares:
        process, before = _start(contender, threads, prompt)
        process.close()
    return *_start(contender, threads, prompt), before


def _start(contender: Contender, threads: int, prompt: list[int]) -> tuple[EngineProcess, Start]:
    process = EngineProcess(
        contender.module, {**contender.settings, "threads": threads}, threads, contender.python
    )
    try:
        first = process.generate(Work([prompt], 1))
        text = process.generate(Work([prompt], TEXT))
    except BaseException:
        process.close()
        raise
    seconds = process.loaded + first.seconds
    size = contender.weight_bytes
    return process, Start(process.version, size, process.imported, process.loaded, seconds, text.memory)


class Bandwidth:
    """Bytes that a plain loop reads a second, each time it is called."""

    def __init__(self, threads: int) -> None:
        settings = {"threads": threads, "megabytes": MEGABYTES}
        self.process = EngineProcess("peers.read_bandwidth", settings, threads, sys.executable)

    def __call__(self) -> float:
        answer = self.process.generate(Work([], 0))
        return answer.tokens[0][0] / answer.seconds
