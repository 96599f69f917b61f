"""Process a corpus on Ray: read files, write one part file per block, and resume unfinished jobs.

    answers/  job.json  part-000000.jsonl  part-000001.jsonl  …

In order of their names the parts equal the output of one machine. They are written atomically, and a block
with a part is done, so resuming writes every row exactly once. Parts of different jobs are never mixed.

A pool of Ray actors processes the blocks; each actor creates its worker once, and Ray reassigns the blocks of
a lost node. Blocks finish in any order and are submitted in waves, so that the driver and Ray's object store
never hold more than one wave of a corpus.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.integrations.loading import RAY
from unspool.integrations.ray.corpus_blocks import Block, block_lines, corpus_blocks
from unspool.io import new_file

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
    workers: int | None,
    gpus: float,
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
    ray = RAY.require("processing a corpus")
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


JOB, LOCK = "job.json", ".lock"


def part_path(folder: Path, number: int) -> Path:
    """The part file of a block."""
    return folder / f"part-{number:06d}.jsonl"


def read_job(folder: Path) -> dict[str, Any]:
    """The job settings of a folder, or an empty dict."""
    if not (folder / JOB).exists():
        return {}
    try:
        job: dict[str, Any] = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / JOB} is not a job file ({error}); choose another folder") from None
    return job


@contextmanager
def lock_folder(folder: Path, job: Mapping[str, Any]) -> Iterator[None]:
    """Lock an output folder that is new or belongs to the job with these settings."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but the output is a folder; choose another name")
    if (
        folder.is_dir()
        and not (folder / JOB).exists()
        and any(path.name != LOCK for path in folder.iterdir())
    ):
        raise ValueError(f"{folder} holds other files but no {JOB}: choose an empty or a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout as error:
        raise BlockingIOError(
            f"another process writes to {folder}: wait for it, or choose another folder"
        ) from error
    with lock:
        job = json.loads(json.dumps(job))
        earlier = read_job(folder)
        differing = sorted(key for key in job.keys() | earlier.keys() if job.get(key) != earlier.get(key))
        if earlier and differing and any(folder.glob("part-*")):
            changes = "; ".join(
                f"{key} was {earlier.get(key)!r:.60} and is {job.get(key)!r:.60}" for key in differing[:3]
            )
            raise ValueError(
                f"{folder} belongs to another job ({changes}): use the same settings, or another folder"
            )
        if job != earlier:
            with new_file(folder / JOB) as temporary:
                temporary.write_text(json.dumps(job, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield


LINES_PER_BLOCK = 256
"""Default number of lines per block: one decoding batch."""


@dataclass(frozen=True)
class Corpus:
    """Input files and output folder."""

    files: Sequence[Path]
    folder: Path
    columns: Sequence[str]
    """Parquet columns to read."""
    rows: int = LINES_PER_BLOCK
    """Lines per block."""

    def blocks(self) -> Iterator[Block]:
        """The blocks in order; reads all files."""
        return corpus_blocks(self.files, self.rows)

    def settings(self) -> dict[str, Any]:
        """Settings that must not change when a job is resumed."""
        return {"files": [[str(path), path.stat().st_size] for path in self.files], "block": self.rows}


@dataclass(frozen=True)
class CorpusResult:
    """Counts of a finished job."""

    rows: int
    blocks: int
    skipped: int
    """Blocks that were already done."""


def run_corpus(
    corpus: Corpus,
    make: Callable[[], Worker],
    settings: Mapping[str, Any],
    *,
    progress: Callable[[int], AbstractContextManager[Callable[[int], None]]],
    first_samples: Callable[[Lines], Sequence[int]],
    workers: int | None = None,
    gpus: float = 0,
) -> CorpusResult:
    """Process every block without a part.

    Every actor calls `make`. `settings` are all arguments that the parts depend on, besides the corpus.
    `progress`, given the number of lines, returns a callback for finished lines. `first_samples` gets the
    lines of every block in order, also of finished ones, and returns the sample number of each line.
    """

    def with_samples(block: Block) -> Block:
        return replace(block, first_samples=tuple(first_samples(block_lines(block, corpus.columns))))

    ray_package()
    folder = corpus.folder
    with lock_folder(folder, {**settings, **corpus.settings()}):
        sizes = {block.number: block.rows for block in corpus.blocks()}
        if not sizes:
            others = f" and {len(corpus.files) - 1} more files" if len(corpus.files) > 1 else ""
            raise ValueError(f"{corpus.files[0]}{others}: there are no lines to read")
        done = {number for number in sizes if part_path(folder, number).exists()}
        rows = sum(sizes.values())
        with ExitStack() as stack:
            advance = stack.enter_context(progress(rows))
            ray = stack.enter_context(connect_ray()) if len(done) < len(sizes) else None
            advance(sum(sizes[number] for number in done))
            missing = (block for block in map(with_samples, corpus.blocks()) if block.number not in done)
            finished = map_blocks(ray, missing, make, corpus.columns, workers=workers, gpus=gpus)
            for number, count, content in finished:
                with new_file(part_path(folder, number)) as temporary:
                    temporary.write_text(content, encoding="utf-8", newline="\n")
                advance(count)
    return CorpusResult(rows, len(sizes), len(done))
