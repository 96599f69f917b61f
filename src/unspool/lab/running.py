"""Run claims seed by seed: known results are read, new ones are saved at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import torch

from unspool.io import new_file
from unspool.lab.claim import Claim, Progress, code_version, silent
from unspool.lab.results import Result, read, write


def run(
    claims: Sequence[Claim],
    seeds: Sequence[int],
    *,
    folder: Path,
    quick: bool = False,
    again: bool = False,
    progress: Callable[[Claim, int, float], None] = silent,
    warn: Callable[[str], None] = silent,
) -> Iterator[tuple[Claim, int, Exception | None]]:
    """Measure every claim with every seed and save the results; `again` repeats known ones.

    Yields each claim and seed, with the error if it failed.
    """
    with new_file(folder / ".writable") as fresh:  # raises before the work if the folder is not writable
        fresh.write_bytes(b"")
    (folder / ".writable").unlink(missing_ok=True)
    for claim, seed in product(claims, seeds):
        failure: Exception | None = None
        try:
            if again or read(folder, claim, seed, quick, warn=warn) is None:
                write(folder, claim, measure_once(claim, seed, quick, partial(progress, claim, seed)))
        except OSError:  # the folder is not writable: the next claim would fail as well
            raise
        except Exception as error:
            failure = error
        progress(claim, seed, 1.0)
        yield claim, seed, failure


def measure_once(claim: Claim, seed: int, quick: bool, progress: Progress = silent) -> Result:
    """Measure a claim once, on one thread and with a fixed seed."""
    start = time.process_time()
    with _single_threaded(seed):
        numbers = claim.measure(seed, quick, progress)
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
