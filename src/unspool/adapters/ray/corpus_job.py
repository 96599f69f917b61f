"""A corpus, from its files to its folder of parts: what is there is left alone, what is missing is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unspool.adapters.ray.actor_pool import Lines, Worker, pooled
from unspool.adapters.ray.corpus_blocks import Block, block_lines, corpus_blocks
from unspool.adapters.ray.part_folder import part_folder
from unspool.adapters.ray.ray_package import joined, ray_package

ROWS = 256
"""Lines of a block, where nothing is said: as many as are decoded side by side."""


@dataclass(frozen=True)
class Corpus:
    """What is to be read, and where it goes."""

    files: Sequence[Path]
    folder: Path
    columns: Sequence[str]
    """Of Parquet, what is read."""
    rows: int = ROWS
    """Lines of a block."""

    def blocks(self) -> Iterator[Block]:
        """In order; the files are read through once each time."""
        return corpus_blocks(self.files, self.rows)

    def asked(self) -> dict[str, Any]:
        """What may not change while it is worked on."""
        return {"files": [[str(it), it.stat().st_size] for it in self.files], "block": self.rows}


@dataclass(frozen=True)
class Finished:
    """How much there was to do."""

    rows: int
    blocks: int
    kept: int
    """Blocks that were there before."""


@contextmanager
def silent(rows: int) -> Iterator[Callable[[int], None]]:  # noqa: ARG001
    """Progress that nobody sees."""
    yield lambda count: None  # noqa: ARG005


def run_corpus(
    corpus: Corpus,
    make: Callable[[], Worker],
    asked: Mapping[str, Any],
    *,
    workers: int | None = None,
    gpus: float = 0,
    shown: Callable[[int], AbstractContextManager[Callable[[int], None]]] = silent,
    first_samples: Callable[[Lines], Sequence[int]] | None = None,
) -> Finished:
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
        with shown(rows) as done, joined() if kept < blocks else nullcontext() as ray:
            done(kept_rows)
            counted = _counted(corpus, first_samples)
            missing = (block for block in counted if not folder.has(block.number))
            for result in pooled(ray, missing, make, corpus.columns, workers=workers, gpus=gpus):
                folder.write(result.number, result.content)
                done(result.rows)
    return Finished(rows, blocks, kept)


def _counted(corpus: Corpus, first_samples: Callable[[Lines], Sequence[int]] | None) -> Iterator[Block]:
    """The blocks with the sample numbers of their lines: those that are done count, too."""
    for block in corpus.blocks():
        if first_samples is None:
            yield block
        else:
            lines = block_lines(block, corpus.columns)
            yield replace(block, first_samples=tuple(first_samples(lines)))


def _files(count: int) -> str:
    return "this file" if count == 1 else f"this file and the {count - 1} with it"
