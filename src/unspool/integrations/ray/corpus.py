"""Process a corpus on Ray: read files, write one part file per block, and resume unfinished jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.integrations.ray.actor_pool import Lines, Worker, connect_ray, map_blocks, ray_package
from unspool.integrations.ray.corpus_blocks import Block, block_lines, corpus_blocks
from unspool.io import new_file

JOB, LOCK = "job.json", ".lock"


@dataclass(frozen=True)
class PartFolder:
    """The locked output folder of a job, with one part file per block, each written atomically.

        answers/  job.json  part-000000.jsonl  part-000001.jsonl  …

    In order of their names the parts equal the output of one machine. A block with a part is done, so
    resuming writes every row exactly once. Parts of different jobs are never mixed.
    """

    path: Path
    job: Mapping[str, Any]
    """The settings of the job."""

    def part(self, number: int) -> Path:
        """The part file of a block."""
        return self.path / f"part-{number:06d}.jsonl"

    def has(self, number: int) -> bool:
        """True if a block is done."""
        return self.part(number).exists()

    def write(self, number: int, content: str) -> None:
        """Write the part of a block."""
        with new_file(self.part(number)) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")


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
def part_folder(folder: Path, job: Mapping[str, Any]) -> Iterator[PartFolder]:
    """Lock a folder that is new or belongs to this job."""
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
        yield PartFolder(folder, job)


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


@contextmanager
def no_progress(rows: int) -> Iterator[Callable[[int], None]]:  # noqa: ARG001
    """A progress callback that does nothing."""
    yield lambda count: None  # noqa: ARG005


def run_corpus(
    corpus: Corpus,
    make: Callable[[], Worker],
    settings: Mapping[str, Any],
    *,
    workers: int | None = None,
    gpus: float = 0,
    progress: Callable[[int], AbstractContextManager[Callable[[int], None]]] = no_progress,
    first_samples: Callable[[Lines], Sequence[int]] | None = None,
) -> CorpusResult:
    """Process every block without a part.

    Every actor calls `make`. `settings` are all arguments that the parts depend on, besides the corpus.
    `progress`, given the number of lines, returns a callback for finished lines. `first_samples` gets the
    lines of every block in order and returns the sample number of each line.
    """
    ray_package()
    with part_folder(corpus.folder, {**settings, **corpus.settings()}) as folder:
        rows, blocks, skipped, skipped_rows = 0, 0, 0, 0
        for block in corpus.blocks():
            rows, blocks = rows + block.rows, blocks + 1
            if folder.has(block.number):
                skipped, skipped_rows = skipped + 1, skipped_rows + block.rows
        if not rows:
            others = f" and {len(corpus.files) - 1} more files" if len(corpus.files) > 1 else ""
            raise ValueError(f"{corpus.files[0]}{others}: there are no lines to read")
        with progress(rows) as advance, connect_ray() if skipped < blocks else nullcontext() as ray:
            advance(skipped_rows)
            numbered = _blocks_with_samples(corpus, first_samples)
            missing = (block for block in numbered if not folder.has(block.number))
            for result in map_blocks(ray, missing, make, corpus.columns, workers=workers, gpus=gpus):
                folder.write(result.number, result.content)
                advance(result.rows)
    return CorpusResult(rows, blocks, skipped)


def _blocks_with_samples(
    corpus: Corpus, first_samples: Callable[[Lines], Sequence[int]] | None
) -> Iterator[Block]:
    """The blocks with the sample numbers of their lines; finished blocks count, too."""
    for block in corpus.blocks():
        if first_samples is None:
            yield block
        else:
            lines = block_lines(block, corpus.columns)
            yield replace(block, first_samples=tuple(first_samples(lines)))
