"""Measure claims, seed by seed: what is already known is read, what is new is kept at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from unspool.io import new_file
from unspool.lab.claim import Claim, Progress, silent
from unspool.lab.results import Result, read, write

SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Done:
    """One measurement that is there now; or the error that took its place."""

    claim: Claim
    seed: int
    result: Result | None
    known: bool
    """It was measured before."""
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
    """Every claim with every seed; `again` also where a result is there. An experiment that fails is told
    of, and the others go on."""
    _check_writable(folder)
    for claim in claims:
        for seed in seeds:
            known = None if again else read(folder, claim, seed, quick, warn=warn)
            if known is not None:
                progress(claim, seed, 1.0)
                yield Done(claim, seed, known, known=True)
                continue
            try:
                result = measured(claim, seed, quick, partial(progress, claim, seed))
                write(folder, claim, result)
            except OSError:  # of the folder: the next claim would fail, too
                raise
            except Exception as error:
                progress(claim, seed, 1.0)
                yield Done(claim, seed, None, known=False, error=error)
            else:
                yield Done(claim, seed, result, known=False)


def measured(claim: Claim, seed: int, quick: bool, progress: Progress = silent) -> Result:
    """One measurement, on one thread and with nothing random but the seed."""
    from unspool.lab.claim import code_version

    start = time.process_time()
    with _alone(seed):
        numbers = claim.measure(seed, quick, progress)
    progress(1.0)
    return Result(claim.name, seed, quick, code_version(claim), numbers, time.process_time() - start)


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """One thread, so that sums are made in the same order anywhere; the caller's randomness is untouched."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _check_writable(folder: Path) -> None:
    """Before the work: a folder that cannot be written to would lose it."""
    with new_file(folder / ".writable") as fresh:
        fresh.write_bytes(b"")
    (folder / ".writable").unlink(missing_ok=True)
