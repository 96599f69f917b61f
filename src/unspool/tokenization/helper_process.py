"""Child process that handles files of unknown origin: chat templates and tokenizer.json.

`template_sandbox` renders chat templates, `tokenizer_probe` tests tokenizers. A process starts on the first
request and stays alive; after a timeout or crash the next request starts a new one. Requests and replies are
lines of JSON, one request at a time.
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


class HelperProcess:
    """A script in a child process."""

    def __init__(self, script: Path) -> None:
        self.script = script
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Drop the process without stopping it: after a fork it belongs to the parent."""
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def request(self, seconds: float, **arguments: Any) -> Mapping[str, str]:
        """The script's reply; TimeoutError after `seconds`."""
        with self._lock:
            try:
                reply = self._send(json.dumps({"seconds": seconds, **arguments}).encode() + b"\n")
            except BaseException:  # a late reply would be read as the next one
                self._stop()
                raise
            if reply.startswith(b"{"):
                return json.loads(reply)
            status = self._stop()
        if reply.startswith(b"Timeout"):
            raise TimeoutError
        return {"error": f"the helper process died (exit status {status})"}

    def close(self) -> None:
        """Stop the process; the next request starts a new one."""
        with self._lock:
            self._stop()

    def _send(self, line: bytes) -> bytes:
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
            paths = os.pathsep.join(sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self.script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"},
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
