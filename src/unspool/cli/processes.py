"""One command as several processes of this machine: each is told its number, and the first one speaks.

    RANK=0 … n − 1,   WORLD_SIZE=n,   MASTER_ADDR and MASTER_PORT where they meet

as torchrun tells it. Ctrl-C and SIGTERM are passed on once to each of them, so that a run ends as it would
alone: with a checkpoint and one line. What the others say is shown only where they end in another way than
the first.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from io import TextIOBase
from types import FrameType
from typing import IO, Any, TextIO

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


# Functions in processes of their own, as many at a time as there are cores for them.


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WholeLines(TextIOBase):
    """A stream of whole lines, so that those of several processes do not mix.

    The beginning of a line that is to be seen at once becomes a line, and begins the whole one again.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._begun, self._seen = stream, "", ""

    def write(self, text: str) -> int:
        """Pass on what has ended, and keep the rest."""
        lines, end, self._begun = (self._begun + text).rpartition("\n")
        if end:
            self._stream.write(lines + end)
            self._stream.flush()
            self._seen = ""
        return len(text)

    def flush(self) -> None:
        """Show what is kept."""
        if self._begun != self._seen:
            self._stream.write(self._begun + "\n")
            self._stream.flush()
            self._seen = self._begun


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, too, and ends this one
    if sys.stderr is not None:
        sys.stderr = WholeLines(sys.stderr)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def side_by_side(functions: Sequence[Callable[[], object]], processes: int) -> None:
    """Call each of them in one of so many new processes, in this order.

    An error of one, Ctrl-C, or a process that is killed ends all.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _begin) as pool:
        try:
            for done in as_completed([pool.submit(function) for function in functions]):
                done.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
