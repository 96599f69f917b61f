"""Process a corpus on Ray: read files, write one part file per block, and resume unfinished jobs.

    answers/  job.json  part-000000.jsonl  part-000001.jsonl  …

In order of their names the parts equal the output of one machine. They are written atomically, and a block
with a part is done, so resuming writes every row exactly once. Parts of different jobs are never mixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.data.reading import no_progress
from unspool.integrations.ray.actor_pool import Lines, Worker, connect_ray, map_blocks, ray_package
from unspool.integrations.ray.corpus_blocks import Block, block_lines, corpus_blocks
from unspool.io import new_file

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
    if folder.is_dir() and not (folder / JOB).exists() and any(it.name != LOCK for it in folder.iterdir()):
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
        return {"files": [[str(it), it.stat().st_size] for it in self.files], "block": self.rows}


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
    workers: int | None = None,
    gpus: float = 0,
    progress: Callable[[int], AbstractContextManager[Callable[[int], None]]] | None = None,
    first_samples: Callable[[Lines], Sequence[int]] | None = None,
) -> CorpusResult:
    """Process every block without a part.

    Every actor calls `make`. `settings` are all arguments that the parts depend on, besides the corpus.
    `progress`, given the number of lines, returns a callback for finished lines. `first_samples` gets the
    lines of every block in order, also of finished ones, and returns the sample number of each line.
    """
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
            advance = no_progress if progress is None else stack.enter_context(progress(rows))
            ray = stack.enter_context(connect_ray()) if len(done) < len(sizes) else None
            advance(sum(sizes[number] for number in done))
            missing = (it for it in _blocks_with_samples(corpus, first_samples) if it.number not in done)
            finished = map_blocks(ray, missing, make, corpus.columns, workers=workers, gpus=gpus)
            for number, count, content in finished:
                with new_file(part_path(folder, number)) as temporary:
                    temporary.write_text(content, encoding="utf-8", newline="\n")
                advance(count)
    return CorpusResult(rows, len(sizes), len(done))


def _blocks_with_samples(
    corpus: Corpus, first_samples: Callable[[Lines], Sequence[int]] | None
) -> Iterator[Block]:
    for block in corpus.blocks():
        if first_samples is None:
            yield block
        else:
            yield replace(block, first_samples=tuple(first_samples(block_lines(block, corpus.columns))))
