"""Run one command in several processes on this machine, as torchrun starts them.

    RANK = 0 … n − 1,   WORLD_SIZE = n,   MASTER_ADDR and MASTER_PORT for the rendezvous

Ctrl-C and SIGTERM are forwarded to every process once, so that each ends as it would alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import IO, Any

EXIT_TIMEOUT = 20.0
"""Seconds after the failure of one process until the others are killed."""
POLL_INTERVAL = 0.1


def run_processes(count: int, command: Sequence[str]) -> int:
    """Run the command in `count` processes; returns the exit status of the first that failed.

    Standard error of the processes after the first is shown only if their exit status differs from its.
    """
    with ExitStack() as stack:
        errors = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in range(1, count))]
        environment = _shared_environment(count)
        children = [_start(rank, command, environment, file) for rank, file in enumerate(errors)]
        with _forward_signals(children):
            failed = _wait(children)
        codes = [child.wait() for child in children]
        statuses = [128 - code if code < 0 else code for code in codes]  # as a shell counts signals
        for rank, (status, file) in enumerate(zip(statuses, errors, strict=True)):
            if file is not None and status not in (0, statuses[0]):
                file.seek(0)
                for line in file.read().decode(errors="replace").splitlines():
                    print(f"process {rank}: {line}", file=sys.stderr)
    return 0 if failed is None else statuses[failed]


def _shared_environment(count: int) -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threads = str(max(1, (os.cpu_count() or 1) // count))
    return {
        "OMP_NUM_THREADS": threads,
        **os.environ,
        **{"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
    }


def _start(
    rank: int, command: Sequence[str], environment: dict[str, str], stderr: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        # In its own group the child does not receive the terminal's Ctrl-C, which this process forwards.
        process_group=0 if os.name == "posix" else None,
    )


@contextmanager
def _forward_signals(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        for child in children:
            child.send_signal(number)

    before: dict[int, Any] = {it: signal.signal(it, forward) for it in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait for all processes; kill them EXIT_TIMEOUT after one failed. Returns the first that failed."""
    failed: int | None = None
    deadline = 0.0
    while any(child.poll() is None for child in children):
        if failed is None:
            failed = _first_failed(children)
            deadline = time.monotonic() + EXIT_TIMEOUT
        elif time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(POLL_INTERVAL)
    return failed if failed is not None else _first_failed(children)


def _first_failed(children: Sequence[subprocess.Popen[bytes]]) -> int | None:
    return next((rank for rank, child in enumerate(children) if child.poll()), None)
