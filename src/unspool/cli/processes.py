"""One command as several processes of this machine: each is told its number, and the first one speaks.

    RANK=0 … n − 1,   WORLD_SIZE=n,   MASTER_ADDR and MASTER_PORT where they meet

as torchrun tells it. Ctrl-C and SIGTERM are passed on once to each of them, so that a run ends as it would
alone: with a checkpoint and one line. What the others say is shown only where they end in another way than
the first.
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

PATIENCE = 20.0
"""Seconds that the others have to notice that one of them has failed."""
_LOOK_EVERY = 0.1


def run_processes(count: int, command: Sequence[str]) -> int:
    """Run the command in `count` processes; the exit status is that of the first that failed."""
    with ExitStack() as stack:
        said = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in range(1, count))]
        environment = _meeting(count)
        children = [_start(rank, command, environment, file) for rank, file in enumerate(said)]
        with _passing_on(children):
            failed = _waited(children)
        statuses = [_status(child) for child in children]
        for rank, (status, file) in enumerate(zip(statuses, said, strict=True)):
            if file is not None and status not in (0, statuses[0]):
                file.seek(0)
                for line in file.read().decode(errors="replace").splitlines():
                    print(f"process {rank}: {line}", file=sys.stderr)
    return 0 if failed is None else statuses[failed]


def _meeting(count: int) -> dict[str, str]:
    """The environment that all of them share; the cores are shared out, too."""
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
    rank: int, command: Sequence[str], environment: dict[str, str], said: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=subprocess.DEVNULL,
        stderr=said,
        # A terminal's Ctrl-C reaches this process alone, which passes it on.
        process_group=0 if os.name == "posix" else None,
    )


@contextmanager
def _passing_on(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        for child in children:
            child.send_signal(number)

    before: dict[int, Any] = {it: signal.signal(it, pass_on) for it in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _waited(children: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Until all have ended; the first that failed. Who does not notice that is ended."""
    failed: int | None = None
    end = 0.0
    while any(child.poll() is None for child in children):
        if failed is None:
            failed = next((rank for rank, child in enumerate(children) if child.poll()), None)
            end = time.monotonic() + PATIENCE
        elif time.monotonic() > end:
            for child in children:
                child.kill()
        time.sleep(_LOOK_EVERY)
    return failed if failed is not None else next((at for at, it in enumerate(children) if it.poll()), None)


def _status(child: subprocess.Popen[bytes]) -> int:
    status = child.wait()
    return 128 - status if status < 0 else status
