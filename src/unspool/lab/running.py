"""Run claims seed by seed: known results are read, new ones are saved at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from unspool.io import new_file
from unspool.lab.claim import Claim, Progress, code_version, silent
from unspool.lab.results import Result, read, write

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Done:
    """One measurement, or its error."""

    claim: Claim
    seed: int
    result: Result | None
    known: bool
    """Whether it was measured before."""
    error: Exception | None = None


def run(
    claims: Sequence[Claim],
    seeds: Sequence[int] = SEEDS,
    *,
    folder: Path,
    quick: bool = False,
    again: bool = False,
    progress: Callable[[Claim, int, float], None] = silent,
    warn: Callable[[str], None] = silent,
) -> Iterator[Done]:
    """Measure every claim with every seed; `again` repeats known ones. A failure yields its error."""
    with new_file(folder / ".writable") as fresh:  # raises before the work if the folder is not writable
        fresh.write_bytes(b"")
    (folder / ".writable").unlink(missing_ok=True)
    for claim in claims:
        for seed in seeds:
            known = None if again else read(folder, claim, seed, quick, warn=warn)
            if known is not None:
                progress(claim, seed, 1.0)
                yield Done(claim, seed, known, known=True)
                continue
            try:
                result = measure_once(claim, seed, quick, partial(progress, claim, seed))
                write(folder, claim, result)
            except OSError:  # the folder is not writable: the next claim would fail as well
                raise
            except Exception as error:
                progress(claim, seed, 1.0)
                yield Done(claim, seed, None, known=False, error=error)
            else:
                yield Done(claim, seed, result, known=False)


def measure_once(claim: Claim, seed: int, quick: bool, progress: Progress = silent) -> Result:
    """Measure a claim once, on one thread and with a fixed seed."""
    start = time.process_time()
    with _single_threaded(seed):
        numbers = claim.measure(seed, quick, progress)
    progress(1.0)
    return Result(claim.name, seed, quick, code_version(claim), numbers, time.process_time() - start)


@contextmanager
def _single_threaded(seed: int) -> Iterator[None]:
    """Use one thread, so that sums have the same order everywhere; keep the caller's random state."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
