"""A corpus, from its files to its folder of parts: what is there is left alone, what is missing is done."""

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
    """The folder, while this process alone writes to it.

    A folder of parts, one file a block, each there whole or not at all; and what the job was that they are
    of.

        answers/  job.json  part-000000.jsonl  part-000001.jsonl  …

    In order of their names they are what one machine writes to one file. A block whose part is there is done:
    that is all there is to resuming, and to every row being there once. Parts of another job are never mixed
    in.
    """

    path: Path
    asked: Mapping[str, Any]
    """The job, as it was first asked for."""

    def part(self, number: int) -> Path:
        """The file of a block."""
        return self.path / f"part-{number:06d}.jsonl"

    def has(self, number: int) -> bool:
        """Whether a block is done."""
        return self.part(number).exists()

    def write(self, number: int, content: str) -> None:
        """Keep what a block came to."""
        with new_file(self.part(number)) as fresh:
            fresh.write_text(content, encoding="utf-8", newline="\n")


def read_job(folder: Path) -> dict[str, Any]:
    """The job that a folder was begun with; empty where there is none."""
    if not (folder / JOB).exists():
        return {}
    try:
        found: dict[str, Any] = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{folder / JOB}: not what this command writes ({error}); choose another folder"
        ) from None
    return found


@contextmanager
def part_folder(folder: Path, asked: Mapping[str, Any]) -> Iterator[PartFolder]:
    """Hold the folder, new or begun with this very job; what belongs to another is refused."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: a corpus is answered into a folder; choose another name")
    if folder.is_dir() and not (folder / JOB).exists() and any(it.name != LOCK for it in folder.iterdir()):
        raise ValueError(f"{folder} holds other files and no {JOB}: choose an empty or a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout as error:
        raise BlockingIOError(
            f"another process writes to {folder}: wait for it, or choose another folder"
        ) from error
    with lock:
        wanted = json.loads(json.dumps(asked))
        begun = read_job(folder)
        other = sorted(key for key in wanted.keys() | begun.keys() if wanted.get(key) != begun.get(key))
        if begun and other and any(folder.glob("part-*")):
            told = "; ".join(
                f"{key} was {begun.get(key)!r:.60} and is {wanted.get(key)!r:.60}" for key in other[:3]
            )
            raise ValueError(
                f"{folder} was begun with another job ({told}): ask the same, or choose another folder"
            )
        if wanted != begun:
            with new_file(folder / JOB) as fresh:
                fresh.write_text(json.dumps(wanted, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield PartFolder(folder, wanted)


LINES_PER_BLOCK = 256
"""Lines of a block, where nothing is said: as many as are decoded side by side."""


@dataclass(frozen=True)
class Corpus:
    """What is to be read, and where it goes."""

    files: Sequence[Path]
    folder: Path
    columns: Sequence[str]
    """Of Parquet, what is read."""
    rows: int = LINES_PER_BLOCK
    """Lines of a block."""

    def blocks(self) -> Iterator[Block]:
        """In order; the files are read through once each time."""
        return corpus_blocks(self.files, self.rows)

    def asked(self) -> dict[str, Any]:
        """What may not change while it is worked on."""
        return {"files": [[str(it), it.stat().st_size] for it in self.files], "block": self.rows}


@dataclass(frozen=True)
class CorpusResult:
    """How much there was to do."""

    rows: int
    blocks: int
    kept: int
    """Blocks that were there before."""


@contextmanager
def no_progress(rows: int) -> Iterator[Callable[[int], None]]:  # noqa: ARG001
    """Progress that nobody sees."""
    yield lambda count: None  # noqa: ARG005


def run_corpus(
    corpus: Corpus,
    make: Callable[[], Worker],
    asked: Mapping[str, Any],
    *,
    workers: int | None = None,
    gpus: float = 0,
    shown: Callable[[int], AbstractContextManager[Callable[[int], None]]] = no_progress,
    first_samples: Callable[[Lines], Sequence[int]] | None = None,
) -> CorpusResult:
    """Do every block that has no part yet; `shown`, given the number of lines, says what to call when some
    of them are done.

    `make` is called in every actor. `asked` is all that the parts depend on, besides the corpus itself.
    `first_samples` is given the lines of every block in order, and gives each line's sample number.
    """
    ray_package()
    with part_folder(corpus.folder, {**asked, **corpus.asked()}) as folder:
        rows, blocks, kept, kept_rows = 0, 0, 0, 0
        for block in corpus.blocks():
            rows, blocks = rows + block.rows, blocks + 1
            if folder.has(block.number):
                kept, kept_rows = kept + 1, kept_rows + block.rows
        if not rows:
            raise ValueError(f"{corpus.files[0]}: there is nothing to read in {_files(len(corpus.files))}")
        with shown(rows) as done, connect_ray() if kept < blocks else nullcontext() as ray:
            done(kept_rows)
            counted = _blocks_with_samples(corpus, first_samples)
            missing = (block for block in counted if not folder.has(block.number))
            for result in map_blocks(ray, missing, make, corpus.columns, workers=workers, gpus=gpus):
                folder.write(result.number, result.content)
                done(result.rows)
    return CorpusResult(rows, blocks, kept)


def _blocks_with_samples(
    corpus: Corpus, first_samples: Callable[[Lines], Sequence[int]] | None
) -> Iterator[Block]:
    """The blocks with the sample numbers of their lines: those that are done count, too."""
    for block in corpus.blocks():
        if first_samples is None:
            yield block
        else:
            lines = block_lines(block, corpus.columns)
            yield replace(block, first_samples=tuple(first_samples(lines)))


def _files(count: int) -> str:
    return "this file" if count == 1 else f"this file and the {count - 1} with it"
