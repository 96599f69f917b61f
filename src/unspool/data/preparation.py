"""`prepare`: from the settings of a recipe to the batches of a training run; the kinds of its [data] section.

    files → rows → vocabulary → token ids → examples → batches

A cache folder keeps the vocabulary and the token ids under hashes of their sources. A second run reuses them,
and files larger than memory are memory-mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.config import to_dict
from unspool.data import encoded_store as store
from unspool.data.batch import Batch
from unspool.data.batches import Batches, Packed
from unspool.data.chats import ChatJSONL, ChatLines
from unspool.data.examples import Pairs, UnknownLabelError, bos_and_eos
from unspool.data.known_languages.made_data import LanguageData, TaskData
from unspool.data.line_formats import JSONL, TSV, Dialogues, LabelledLines, Lines, Parallel, TaggedLines
from unspool.data.rows import (
    END_OF_TEXT,
    Data,
    OwnTokenizer,
    RowFormat,
    check_files,
    no_progress,
    progress_bar,
)
from unspool.interfaces import Feed
from unspool.io import remove_folder
from unspool.tokenization import Separate, Tokenizer, TokenizerConfig

DATA: dict[str, type[Data]] = {
    "chat_jsonl": ChatJSONL,
    "chat_lines": ChatLines,
    "dialogues": Dialogues,
    "jsonl": JSONL,
    "labelled": LabelledLines,
    "language": LanguageData,
    "lines": Lines,
    "parallel": Parallel,
    "tagged": TaggedLines,
    "task": TaskData,
    "tsv": TSV,
}


@dataclass(frozen=True)
class PreparedData:
    """The data of a training run."""

    tokenizer: Tokenizer
    train: Feed
    valid: list[Batch]
    """Every validation example once; may be empty."""
    labels: tuple[str, ...] = ()
    """The labels of a classifier or tagger: target i is labels[i]."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts of examples, tokens and rows left out."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


def prepare(
    data: Data,
    tokenizer: TokenizerConfig | Tokenizer | None,
    batches: Batches,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: bool = False,
    files: store.FileHashes | None = None,
) -> PreparedData:
    """Read the data, train the vocabulary if `tokenizer` is a setting, encode, and lay out the batches.

    If `tokenizer` is None, the data brings its vocabulary. `files` are the hashes of the data's files, if
    known. Faulty data raises ValueError here, before training.
    """
    work = _Preparation(data, seed, None if cache is None else Path(cache), progress, files)
    vocabulary = work.vocabulary(tokenizer)
    if work.form.joined and not isinstance(batches, Packed):
        raise ValueError('document = "file" needs packed batches: set batches.kind = "packed"')
    if vocabulary.right_to_left and work.form.labels:
        raise ValueError("tokenizer.right_to_left does not work with labelled data: remove it")
    found = work.encoded(vocabulary)
    notes = [*work.notes, *_vocabulary_notes(tokenizer, vocabulary), *_overlap_notes(work.files)]
    if found.empty:
        notes.append(f"{found.empty} rows with an empty column were left out")
    train, valid = (work.form.examples(columns) for columns in (found.train, found.valid))
    feed = batches.feed(train, bos_and_eos(vocabulary), seed, notes.append)
    checks = batches.validation_batches(valid, bos_and_eos(vocabulary), notes.append) if len(valid) else []
    facts = {
        "vocab_size": vocabulary.vocab_size,
        **({} if vocabulary.source is None else {"source_vocab_size": vocabulary.source.vocab_size}),
        "train_examples": len(train),
        "train_tokens": int(train.sizes_NK.sum()),
        "valid_examples": len(valid),
        "valid_tokens": int(valid.sizes_NK.sum()),
        "batches_per_epoch": feed.per_epoch,
        "empty_rows": found.empty,
    }
    return PreparedData(vocabulary, feed, checks, work.form.labels, facts, tuple(notes))


def _vocabulary_notes(config: TokenizerConfig | Tokenizer | None, learnt: Tokenizer) -> Iterator[str]:
    settings: list[tuple[str, Any, Tokenizer | None]] = [("tokenizer", config, learnt)]
    if isinstance(config, Separate):
        sides = {"source": learnt.source, "target": learnt}
        settings = [
            (f"tokenizer.{name}", config.side(name), vocabulary) for name, vocabulary in sides.items()
        ]
    for name, side, vocabulary in settings:
        wanted = getattr(side, "vocab_size", None)
        size = 0 if vocabulary is None else vocabulary.vocab_size
        if wanted is not None and 0 < size < wanted:
            yield (f"{name}.vocab_size is {wanted}, but the training text gives only {size} tokens")


def _overlap_notes(files: store.FileHashes) -> Iterator[str]:
    for valid, train in (("valid", "train"), ("valid_source", "source")):
        if set(files.get(valid, ())) & set(files.get(train, ())):
            yield (
                f"data.{valid} and data.{train} share a file, so that validation measures memorisation: hold "
                "lines out instead (valid_share)"
            )


class _Preparation:
    """One preparation; it reads the data as few times as possible."""

    def __init__(
        self, data: Data, seed: int, cache: Path | None, progress: bool, files: store.FileHashes | None
    ) -> None:
        self.data, self.seed, self.cache, self.progress, self._files = data, seed, cache, progress, files
        check_files(data.files())
        self.bytes = sum(Path(path).stat().st_size for paths in data.files().values() for path in paths)
        self.form: RowFormat = data.form(data.train_rows(no_progress))
        self.notes: list[str] = []

    def vocabulary(self, tokenizer: TokenizerConfig | Tokenizer | None) -> Tokenizer:
        """Return the given tokenizer, the data's, or one trained on the training rows (cached)."""
        if isinstance(tokenizer, Tokenizer):
            return tokenizer
        if tokenizer is None:
            if not isinstance(self.data, OwnTokenizer):
                raise ValueError(f"{type(self.data).__name__} brings no vocabulary: give a tokenizer setting")
            return self.data.new_tokenizer()
        if self.cache is None:
            return self._trained(tokenizer)
        name = store.combine_hashes(self.key, store.hash_settings(type(tokenizer), to_dict(tokenizer)))
        folder = self.cache / f"tokenizer-{name}"
        if folder.is_dir():
            try:
                return Tokenizer.load(folder)
            except (OSError, ValueError) as error:
                self._clear(folder, error)
        trained = self._trained(tokenizer)
        with store.atomic_folder(folder) as fresh:
            trained.save(fresh)
        return Tokenizer.load(folder)

    def encoded(self, tokenizer: Tokenizer) -> store.EncodedRows:
        """Return all rows as token ids, from the cache if possible."""
        folder = None
        if self.cache is not None:
            name = store.combine_hashes(self.key, store.hash_tokenizer(tokenizer))
            folder = self.cache / f"tokens-{name}"
            if folder.is_dir():
                try:
                    return store.read_encoded_rows(folder, self.form)
                except store.DamagedCacheError as error:
                    self._clear(folder, error)
        held = self.held
        with progress_bar("encode", self.bytes, self.progress) as advance:
            train, valid = self.data.train_rows(advance), self.data.valid_rows(advance)
            try:
                return store.encode_rows(train, valid, held, self.form, tokenizer, folder)
            except UnknownLabelError as error:
                raise ValueError(f"{self._find_label(error.label)}{error}") from error

    def _find_label(self, label: str) -> str:
        """Return file and line of the first row with a label, for an error message."""
        data: Any = self.data
        for path in (path for paths in data.files().values() for path in paths):
            for number, row in enumerate(data.rows(path, no_progress), start=1):
                if label in self.form.labels_of(row):
                    return f"{path}, line {number}: "
        return ""

    @cached_property
    def files(self) -> store.FileHashes:
        return store.hash_files(self.data) if self._files is None else self._files

    @cached_property
    def key(self) -> str:
        return store.hash_data(self.data, self.seed, self.files)

    @cached_property
    def held(self) -> npt.NDArray[np.bool_]:
        """Mask of held-out rows. Counting the rows reads all data, so that faults are found here."""
        with progress_bar("read", self.bytes, self.progress) as advance:
            valid = self.data.valid_rows(advance)
            if valid is not None and self.data.holds_out:
                raise ValueError("the data has validation rows: remove valid_share and valid_lines")
            count = store.NonEmptyRows(self.data.train_rows(advance), self.form).count()
            others = None if valid is None else store.NonEmptyRows(valid, self.form).count()
        if count == 0 or others == 0:
            raise ValueError(f"every row of the {'training' if count == 0 else 'validation'} data is empty")
        return self.data.held(count, self.seed)

    def _clear(self, folder: Path, error: Exception) -> None:
        self.notes.append(f"the cache was damaged and is rebuilt: {error}")
        remove_folder(folder)

    def _trained(self, config: TokenizerConfig) -> Tokenizer:
        if isinstance(config, Separate) and isinstance(self.form, Pairs):
            return config.train_pairs(self._texts(0), self._texts(1))
        learnt = config.train(self._texts())
        if self.form.joined:  # rows do not begin with BOS
            return replace(learnt, bos_id=None, bos_token="")
        return replace(learnt, add_bos=self.form.adds_bos)

    def _texts(self, side: int | None = None) -> Iterator[str]:
        held = self.held
        with progress_bar("vocabulary", self.bytes, self.progress) as advance:
            rows = store.NonEmptyRows(self.data.train_rows(advance), self.form)
            for number, row in enumerate(row for row in rows if row != END_OF_TEXT):
                if not held[number]:
                    yield from self.form.texts(row) if side is None else (row[side],)
