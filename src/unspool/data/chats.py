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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy.typing as npt
import torch

from unspool.data.batch import Batch, Ragged
from unspool.data.examples import Examples, Row, RowFormat, Sequences
from unspool.data.line_formats import TextFiles, json_field, json_object
from unspool.data.reading import OnProgress, read_lines
from unspool.data.split import Ints
from unspool.errors import check_surrogates
from unspool.tokenization import Tokenizer
from unspool.tokenization.control_tokens import ChatPrompt

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

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """The tokens of each row up to the end of its last answer, and a 1 for each that is to be learnt."""
        _check_tokenizer(text)
        written = [_render(list(messages(row)), text) for row in rows]
        found = text.encode_batch([whole for whole, _ in written])
        encoded = []
        for (whole, begins), tokens in zip(written, found, strict=True):
            plain = whole.ordinary and not text.literal
            located = (tokens.ids, tokens.offsets) if plain else text.encode_with_offsets(whole)
            ids, places = _answer_starts(whole, begins, *located, text)
            ids, counts = _mark_answers(ids, places, text)
            row = text.with_bos(ids)
            counts = [0] * (len(row) - len(ids)) + counts
            counts[0] = 0  # nothing stands before it, so it is no target
            encoded.append([row, counts])
        return encoded

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of a language model."""
        return ChatSequences(columns[0], counts=columns[1])


@dataclass(frozen=True, eq=False)
class ChatSequences(Sequences):
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


def _render(said: Sequence[Message], text: Tokenizer) -> tuple[ChatPrompt, list[int]]:
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


def _answer_starts(
    whole: ChatPrompt,
    begins: Sequence[int],
    ids: list[int],
    offsets: Sequence[tuple[int, int]],
    text: Tokenizer,
) -> tuple[list[int], list[int]]:
    """The tokens of the whole text, and the places among them at which answers begin."""
    if not any(start < begin < end for begin in begins for start, end in offsets):
        starts = [start for start, _ in offsets]
        return ids, [bisect_left(starts, begin) for begin in begins]
    parts = [whole[begin:end] for begin, end in pairwise((0, *begins, len(whole)))]
    found = [text.encode_with_offsets(part)[0] for part in parts]
    return [it for ids in found for it in ids], list(accumulate(map(len, found[:-1])))


def _mark_answers(ids: list[int], begins: Sequence[int], text: Tokenizer) -> tuple[list[int], list[int]]:
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


def _check_tokenizer(text: Tokenizer) -> None:
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


@dataclass(frozen=True, kw_only=True)
class ChatJSONL(TextFiles):
    """One object a line, with the messages of a conversation. What the assistant says alone is learnt.

    Conversations as most of the world keeps them: one JSON object a line, with a list of messages.

    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    """

    messages: str = "messages"
    """The field with the list of messages, each with a "role" and a "content"."""

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """What a row is."""
        del rows
        return Chats()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """The rows of one file: messages up to the last of the assistant."""
        for number, line in enumerate(read_lines(path, self.max_line_bytes, advance), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            said = _read_messages(json_field(json_object(line, where), self.messages, where), where)
            answers = [at for at, (role, _) in enumerate(said) if role == ASSISTANT]
            if not answers:
                raise ValueError(
                    f"{where}: no message is of the role {ASSISTANT!r}: there is no answer to learn"
                )
            yield tuple(it for message in said[: answers[-1] + 1] for it in message)


def _read_messages(found: Any, where: str) -> list[tuple[str, str]]:
    said = []
    for message in found if isinstance(found, list) else [found]:
        pair = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if not all(isinstance(it, str) for it in pair):
            raise ValueError(
                f'{where}: messages must be a list of objects with a "role" and a "content", all strings; '
                f"found {message!r:.60}"
            )
        said.append((check_surrogates(str(pair[0]), where), check_surrogates(str(pair[1]), where)))
    return said


@dataclass(frozen=True, kw_only=True)
class ChatLines(TextFiles):
    """One dialogue a line, its turns separated by a mark: user, assistant, … Answers alone are learnt.

    Dialogues of two people as conversations of a user and an assistant.

        u₁ __eou__ u₂ __eou__ u₃ __eou__   →   user: u₁, assistant: u₂

    A last turn that nobody answers is left out.
    """

    mark: str = "__eou__"
    """What stands between two turns (and may stand after the last one)."""
    system: str | None = None
    """What the first message of every conversation says, from the system; None: what the template says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mark:
            raise ValueError("mark is empty: say what stands between two turns")

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """What a row is."""
        del rows
        return Chats()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """The rows of one file."""
        found = 0
        for line in read_lines(path, self.max_line_bytes, advance):
            turns = [turn.strip() for turn in line.split(self.mark) if turn.strip()]
            if len(turns) > 1:
                found += 1
                yield self._row(turns)
        if not found:
            raise ValueError(f"{path} has no line with two turns: is {self.mark!r} what stands between them?")

    def _row(self, turns: Sequence[str]) -> Row:
        answered = turns[: len(turns) // 2 * 2]
        said = [it for at, turn in enumerate(answered) for it in ((USER, ASSISTANT)[at % 2], turn)]
        return (*(() if self.system is None else ("system", self.system)), *said)
