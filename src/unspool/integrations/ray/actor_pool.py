"""Blocks through a pool of Ray actors: each makes its worker once, and is given block after block.

What a lost node had in hand is given to another actor by Ray. Blocks come back in any order, a wave of them
at a time, so that neither the driver nor Ray's store ever knows more of a corpus than that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from unspool.integrations.ray.corpus_blocks import Block, block_lines

BLOCKS_PER_WAVE = 1024
"""Blocks that Ray is told of at once. The models are loaded anew for each wave."""

Lines = Sequence[tuple[str, str]]
"""Where each line stands, and the line."""
Worker = Callable[[Lines, Sequence[int]], str]
"""What a block's lines and their sample numbers come to, as its part file holds it."""


class BlockActor:
    """A worker in a process of its own."""

    def __init__(self, make: Callable[[], Worker], columns: Sequence[str]) -> None:
        self.columns = columns
        try:
            self.work: Worker = make()
        except (ValueError, TypeError, OSError, ImportError) as error:
            self.work = _failing_worker(str(error))

    def __call__(self, batch: Any) -> dict[str, list[Any]]:
        """One block; what is wrong with its lines is told, not raised: Ray would try it again elsewhere."""
        (row,) = batch.to_pylist()
        content, wrong = "", ""
        try:
            content = self.work(block_lines(Block(**row), self.columns), row["first_samples"])
        except ValueError as error:
            wrong = str(error)
        return {"number": [row["number"]], "rows": [row["rows"]], "content": [content], "wrong": [wrong]}


def _failing_worker(wrong: str) -> Worker:
    """In the place of a worker that could not be made: Ray would try for ever to start its actor anew."""

    def refuse(lines: Lines, first_samples: Sequence[int]) -> str:  # noqa: ARG001
        raise ValueError(wrong)

    return refuse


@dataclass(frozen=True)
class FinishedBlock:
    """What became of a block."""

    number: int
    rows: int
    content: str


def map_blocks(
    ray: Any,
    blocks: Iterable[Block],
    make: Callable[[], Worker],
    columns: Sequence[str],
    *,
    workers: int | None = None,
    gpus: float = 0,
) -> Iterator[FinishedBlock]:
    """What became of every block, as soon as it is there."""
    waves = iter(blocks)
    while wave := [asdict(block) for block in islice(waves, BLOCKS_PER_WAVE)]:
        dataset = ray.data.from_items(wave, override_num_blocks=len(wave)).map_batches(
            BlockActor,
            fn_constructor_args=(make, tuple(columns)),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(pool_size(ray, workers), len(wave))),
            num_cpus=1,
            num_gpus=gpus or None,
        )
        for row in dataset.iter_rows():
            if row["wrong"]:
                raise ValueError(row["wrong"])
            yield FinishedBlock(row["number"], row["rows"], row["content"])


def pool_size(ray: Any, asked: int | None) -> int:
    """As many actors as were asked for, or one for every processor but one, which Ray itself has work for."""
    return asked or max(1, int(ray.cluster_resources().get("CPU", 1)) - 1)


# Ray itself, if it is there and new enough.


MIN_RAY_VERSION = (2, 40)
"""The first release whose actor pools restart what a lost node has taken with it, as the tests need it."""


def ray_package() -> Any:
    """The module `ray`, with `ray.data`; an ImportError that says what to install where it is not there."""
    try:
        found = version("ray")
    except PackageNotFoundError:
        raise ImportError("work on Ray needs its package: pip install 'unspool[ray]'") from None
    if tuple(int(part) for part in found.split(".")[:2]) < MIN_RAY_VERSION:
        oldest = ".".join(map(str, MIN_RAY_VERSION))
        raise ImportError(f"ray {found} is too old, and {oldest} needed: pip install -U 'unspool[ray]'")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            f"ray is there without what ray.data needs ({error}): pip install 'unspool[ray]'"
        ) from error
    return ray


@contextmanager
def connect_ray() -> Iterator[Any]:
    """Ray in a cluster: the one that this process is in, or RAY_ADDRESS names, or runs on this machine; else
    one is started here. What was joined here is left at the end."""
    ray = ray_package()
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray's own code says of every pool of ray.data that what restarts its actors might be lost.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
