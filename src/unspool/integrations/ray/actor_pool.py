"""Process blocks with a pool of Ray actors; each actor creates its worker once.

Ray reassigns the blocks of a lost node. Blocks finish in any order and are submitted in waves, so that the
driver and Ray's object store never hold more than one wave of a corpus.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any

from unspool.integrations.loading import RAY
from unspool.integrations.ray.corpus_blocks import Block, block_lines

BLOCKS_PER_WAVE = 1024
"""Blocks submitted at once. Models are loaded again for each wave."""

Lines = Sequence[tuple[str, str]]
"""(location, line) pairs."""
Worker = Callable[[Lines, Sequence[int]], str]
"""Turns the lines of a block and their sample numbers into the content of its part file."""


class BlockActor:
    """A Ray actor with a worker."""

    def __init__(self, make: Callable[[], Worker], columns: Sequence[str]) -> None:
        self.columns, self.error = columns, ""
        try:
            self.work: Worker = make()
        except (ValueError, TypeError, OSError, ImportError) as error:
            self.error = str(error)  # Ray would restart a failing actor forever

    def __call__(self, batch: Any) -> dict[str, list[Any]]:
        """Process one block; errors are returned, because Ray would retry a block that raises."""
        (row,) = batch.to_pylist()
        content, error_message = "", self.error
        try:
            if not error_message:
                content = self.work(block_lines(Block(**row), self.columns), row["first_samples"])
        except ValueError as error:
            error_message = str(error)
        return {
            "number": [row["number"]],
            "rows": [row["rows"]],
            "content": [content],
            "error": [error_message],
        }


def map_blocks(
    ray: Any,
    blocks: Iterable[Block],
    make: Callable[[], Worker],
    columns: Sequence[str],
    *,
    workers: int | None = None,
    gpus: float = 0,
) -> Iterator[tuple[int, int, str]]:
    """Yield (number, rows, content) of every block as soon as it is ready."""
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
            if row["error"]:
                raise ValueError(row["error"])
            yield row["number"], row["rows"], row["content"]


def pool_size(ray: Any, workers: int | None) -> int:
    """`workers`, or by default one actor per processor, with one processor left for Ray."""
    return workers or max(1, int(ray.cluster_resources().get("CPU", 1)) - 1)


def ray_package() -> Any:
    """Import `ray` and `ray.data`; ImportError with the install command if missing or too old."""
    ray = RAY.imported("processing a corpus")
    try:
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ImportError(f"ray.data cannot be imported ({error}): pip install 'unspool[ray]'") from error
    return ray


@contextmanager
def connect_ray() -> Iterator[Any]:
    """Connect to Ray: the current cluster, RAY_ADDRESS, a local one, or a new one; disconnect at the end."""
    ray = ray_package()
    if ray.is_initialized():
        yield ray
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Ray logs a spurious warning for every actor pool.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
