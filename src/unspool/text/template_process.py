"""Asks a process that works on files of unknown origin: it is started when it is first needed, and kept.

`sandbox` renders chat templates, `tokenizer_probe` tries tokenizers. After work that had to be stopped there
is a new process. Each is asked by one thread at a time.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

SANDBOX = Path(__file__).with_name("sandbox.py")
"""Run, and not imported: this process has no need of jinja2."""


class HelperProcess:
    """One process that runs a script, and the way to it."""

    def __init__(self, script: Path = SANDBOX) -> None:
        self.script = script
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """As if none had been started: after a fork, it is the parent's."""
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, seconds: float, **asked: Any) -> Mapping[str, str]:
        """What the script answers; TimeoutError if that takes longer than `seconds`."""
        with self._lock:
            try:
                answer = self._answer(json.dumps({"seconds": seconds, **asked}).encode() + b"\n")
            except BaseException:  # a late answer would be taken for the next one
                self._stop()
                raise
            if answer.startswith(b"{"):
                found: Mapping[str, str] = json.loads(answer)
                return found
            status = self._stop()
        if answer.startswith(b"Timeout"):
            raise TimeoutError
        return {"error": f"the process that worked on it has died (exit status {status})"}

    def _answer(self, line: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except BrokenPipeError:
            return b""

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # It finds the same packages, and starts no threads of its own.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "TOKENIZERS_PARALLELISM": "false",
                },
            )
        return self._process

    def _stop(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()
        return process.returncode

    def close(self) -> None:
        """End the process; asked again, there is a new one."""
        with self._lock:
            self._stop()


TEMPLATES = HelperProcess()
"""The one that this Python program asks for chat templates."""
