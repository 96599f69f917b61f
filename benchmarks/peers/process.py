"""Our end of the pipe to an engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peers.work import Work

HERE = Path(__file__).resolve().parents[1]


class EngineFailedError(RuntimeError):
    """An engine that could not be loaded or could not do what was asked; the message is its own."""


@dataclass(frozen=True)
class Answer:
    """What an engine generated, how long it took by its own clock, and its memory afterwards."""

    seconds: float
    tokens: list[list[int]]
    memory: dict[str, int]


class EngineProcess:
    """An engine that has been loaded; it sleeps between two requests."""

    def __init__(self, module: str, settings: dict[str, Any], threads: int, python: str = sys.executable):
        number = str(threads)
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [python, "-m", module, json.dumps(settings)],
            cwd=HERE,
            env={**os.environ, **dict.fromkeys(variables, number), "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self._hear()
            self.imported = time.perf_counter() - start
            """Seconds from nothing to all libraries, Python itself among them."""
            ready = self._hear()
        except EngineFailedError:
            self.close()
            raise
        self.loaded: float = ready["loaded"]
        self.version: str = ready["version"]
        self.memory: dict[str, int] = ready["memory"]

    def generate(self, work: Work) -> Answer:
        assert self._process.stdin is not None
        print(json.dumps(asdict(work)), file=self._process.stdin, flush=True)
        answer = Answer(**self._hear())
        self.memory = answer.memory
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = [line for line in self._errors.read().splitlines() if line.strip()]
            raise EngineFailedError(said[-1] if said else f"it ended with status {self._process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineFailedError(answer["error"])
        return answer
