"""Run claims seed by seed, in one or several processes; known results are read, new ones saved at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from unspool.io import new_file
from unspool.lab.claim import FIRST_SEED, Experiment, Numbers, Progress, silent
from unspool.lab.dependencies import code_version
from unspool.lab.inputs import described
from unspool.lab.registry import digest
from unspool.lab.results import Result, read, write

SECONDS, QUICK_SECONDS = 8.0, 3.0
"""Mean processor time of one seed, the estimate before a claim was measured."""


def run(
    claims: Sequence[Experiment],
    seeds: Sequence[int] | None = None,
    *,
    folder: Path,
    quick: bool = False,
    jobs: int = 1,
    progress: Callable[[Experiment, int, float], None] = silent,
) -> Iterator[tuple[Experiment, int, Exception | None]]:
    """Measure every claim with every seed that has no result yet, and save the results.

    Yields each claim and seed, with the error if it failed.
    """
    with new_file(folder / ".writable") as fresh:  # raises before the work if the folder is not writable
        fresh.write_bytes(b"")
    (folder / ".writable").unlink(missing_ok=True)
    todo = []
    for claim, seed in pairs(claims, seeds, quick):
        if read(folder, claim, seed, quick) is None:
            todo.append((claim, seed))
        else:
            progress(claim, seed, 1.0)
            yield claim, seed, None
    results = _measure_in_processes(todo, quick, jobs) if jobs > 1 else _measure(todo, quick, progress)
    for claim, seed, result in results:
        if isinstance(result, Result):
            try:
                write(folder, result)
            except ValueError as error:
                result = error
        progress(claim, seed, 1.0)
        yield claim, seed, None if isinstance(result, Result) else result


def pairs(
    claims: Sequence[Experiment], seeds: Sequence[int] | None, quick: bool
) -> list[tuple[Experiment, int]]:
    """Return every claim with every seed; the default is the claim's own number of seeds."""
    return [
        (claim, seed) for claim in claims for seed in (claim.default_seeds(quick) if seeds is None else seeds)
    ]


def estimated_seconds(folder: Path, claim: Experiment, seed: int, quick: bool) -> float:
    """Return the processor time of the last measurement, or an estimate."""
    known = read(folder, claim, seed, quick, older=True)
    return known.seconds if known else QUICK_SECONDS if quick else SECONDS


Outcome = tuple[Experiment, int, Result | Exception]


def _measure(
    todo: Sequence[tuple[Experiment, int]], quick: bool, progress: Callable[[Experiment, int, float], None]
) -> Iterator[Outcome]:
    for claim, seed in todo:
        try:
            yield claim, seed, measure_once(claim, seed, quick, partial(progress, claim, seed))
        except Exception as error:
            yield claim, seed, error


def _measure_in_processes(
    todo: Sequence[tuple[Experiment, int]], quick: bool, jobs: int
) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(_measure_by_name, claim.name, seed, quick): (claim, seed) for claim, seed in todo
        }
        try:
            for future in as_completed(futures):
                failure = future.exception()
                if failure is not None and not isinstance(failure, Exception):
                    raise failure
                yield (*futures[future], failure or future.result())
        finally:
            pool.shutdown(cancel_futures=True)


def _measure_by_name(name: str, seed: int, quick: bool) -> Result:
    from unspool.lab.claims import CLAIMS

    (claim,) = (it for it in CLAIMS if it.name == name)
    return measure_once(claim, seed, quick)


def measure_once(claim: Experiment, seed: int, quick: bool, progress: Progress = silent) -> Result:
    """Measure a claim once, on one thread and with a fixed seed."""
    plan, code = digest(claim.plan()), code_version(claim)  # as they are before the run
    start = time.process_time()
    with _single_threaded(seed):
        numbers = claim.measure(seed, quick, progress)
    seconds, data = time.process_time() - start, "" if quick else described(claim.needs)
    with _single_threaded(seed):
        probe = {} if quick or seed != FIRST_SEED else claim.measure(seed, True, silent)
    return Result(claim.name, seed, quick, plan, code, _rounded(numbers), seconds, data, _rounded(probe))


def _rounded(numbers: Numbers) -> Numbers:
    """Return six significant digits, which keeps reports small."""
    return {
        name: [float(f"{it:.6g}") for it in value] if isinstance(value, list) else float(f"{value:.6g}")
        for name, value in numbers.items()
    }


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
