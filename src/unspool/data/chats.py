"""Conversations as a model's own chat template writes them, with the answers alone to learn.

    <|im_start|>user ⏎ Hi<|im_end|> ⏎ <|im_start|>assistant ⏎ Hello<|im_end|>
    0                                                         1

What counts is what the model will have to say itself: from where the template asks for an answer up to the
token that ends it. Everything else, other turns and the template's own words, is only read.

A row is (role, content, role, content, …). Its text is tokenised as a whole, as a prompt of `us.generate` is,
unless a token would reach from a question into its answer: then the text is cut there, as it is when the
model is asked. Special tokens that a message spells are text, as they are in a prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy.typing as npt
import torch

from unspool.data.batch import Batch
from unspool.data.examples import Examples, Sequences
from unspool.data.ragged import Ragged
from unspool.data.random_orders import Ints
from unspool.data.row_forms import Row
from unspool.text import Codec
from unspool.text.control_tokens import ChatPrompt

USER, ASSISTANT = "user", "assistant"

Message = Mapping[str, str]


@dataclass(frozen=True)
class Chats:
    """Two columns of numbers: the tokens of a conversation, and which of them count."""

    joined: bool = False
    adds_bos: bool = True
    columns: int = 2
    labels: tuple[str, ...] = ()

    def texts(self, row: Row) -> Sequence[str]:
        """What was said."""
        return row[1::2]

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
        """The tokens of each row up to the end of its last answer, and a 1 for each that is to be learnt."""
        _check(text)
        written = [_written(list(messages(row)), text) for row in rows]
        found = text.encode_batch([whole for whole, _ in written])
        encoded = []
        for (whole, begins), tokens in zip(written, found, strict=True):
            plain = whole.ordinary and not text.literal
            located = (tokens.ids, tokens.offsets) if plain else text.located(whole)
            ids, places = _cut(whole, begins, *located, text)
            ids, counts = _counted(ids, places, text)
            row = text.with_bos(ids)
            counts = [0] * (len(row) - len(ids)) + counts
            counts[0] = 0  # nothing stands before it, so it is no target
            encoded.append([row, counts])
        return encoded

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of a language model."""
        return Answers(columns[0], counts=columns[1])


@dataclass(frozen=True, eq=False)
class Answers(Sequences):
    """Texts of which some tokens only are targets."""

    counts: Ragged | None = None
    """For each token, whether it is one."""

    @property
    def target_counts(self) -> npt.NDArray[Any] | None:
        """For each token of all conversations, whether it is of an answer."""
        assert self.counts is not None
        return self.counts.values

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        plain = super().batch(rows_N)
        assert self.counts is not None
        counts_NT = self.counts.padded(rows_N, plain.lengths_N.numpy(), skip=1)
        return replace(plain, weights_NU=torch.from_numpy(counts_NT).float())


def messages(row: Row) -> Iterator[Message]:
    """The messages of a row."""
    for role, content in zip(row[::2], row[1::2], strict=True):
        yield {"role": role, "content": content}


def _written(said: Sequence[Message], text: Codec) -> tuple[ChatPrompt, list[int]]:
    """The whole conversation as the template has it, and the characters at which answers begin."""
    whole, begins = text.chat(said, answered=True), []
    for at, message in enumerate(said):
        if message["role"] == ASSISTANT:
            asked = text.chat(said[:at])
            if not whole.startswith(asked):
                raise ValueError(
                    "the model's chat template writes earlier turns otherwise once others follow them: what "
                    "the model would read before its answers cannot be shown in one text; give dialogues of "
                    "one question and one answer"
                )
            begins.append(len(asked))
    return whole, begins


def _cut(
    whole: ChatPrompt, begins: Sequence[int], ids: list[int], offsets: Sequence[tuple[int, int]], text: Codec
) -> tuple[list[int], list[int]]:
    """The tokens of the whole text, and the places among them at which answers begin."""
    if not any(start < begin < end for begin in begins for start, end in offsets):
        starts = [start for start, _ in offsets]
        return ids, [bisect_left(starts, begin) for begin in begins]
    parts = [whole[begin:end] for begin, end in pairwise((0, *begins, len(whole)))]
    found = [text.located(part)[0] for part in parts]
    return [it for ids in found for it in ids], list(accumulate(map(len, found[:-1])))


def _counted(ids: list[int], begins: Sequence[int], text: Codec) -> tuple[list[int], list[int]]:
    """The tokens up to the last answer's end, and those that count."""
    counts, end = [0] * len(ids), 0
    for begin, limit in zip(begins, [*begins[1:], len(ids)], strict=True):
        ends = [at for at in range(begin, limit) if ids[at] in text.eos_ids]
        if not ends:
            raise ValueError(
                "the model's chat template writes no token that ends an answer (eos_ids): a model could not "
                "learn to stop"
            )
        end = ends[0] + 1
        counts[begin:end] = [1] * (end - begin)
    return ids[:end], counts[:end]


def _check(text: Codec) -> None:
    if text.right_to_left:
        raise ValueError(
            "a conversation goes from question to answer, and the model reads from right to left: train one "
            "that reads from left to right"
        )
    if text.chat_template is None:
        raise ValueError(
            "the data are conversations, but the vocabulary brings no chat template to write them with: "
            'begin with a model that was taught to chat ([model] from), or choose kind = "dialogues"'
        )
