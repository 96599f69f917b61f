"""Chat data: conversations rendered by the model's chat template; only the answers are targets.

    <|im_start|>user ⏎ Hi<|im_end|> ⏎ <|im_start|>assistant ⏎ Hello<|im_end|>
    0                                                         1

The targets are the tokens that the model has to generate: from the end of the generation prompt to the token
that ends the answer. Other turns and the text of the template have weight 0.

A row is (role, content, role, content, …). Its text is tokenized at once, like a prompt of `us.generate`. If
a token would span a question and its answer, the text is split there, as in generation. Special tokens inside
of messages are plain text, as in prompts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from unspool.data.batch import Ragged
from unspool.data.examples import Examples, Sequences
from unspool.data.line_formats import JSONObjects, MarkedLines, json_field
from unspool.data.rows import OnProgress, Row, RowFormat
from unspool.errors import check_surrogates
from unspool.tokenization import Tokenizer
from unspool.tokenization.control_tokens import ChatPrompt

USER, ASSISTANT = "user", "assistant"

Message = Mapping[str, str]


@dataclass(frozen=True)
class Chats(RowFormat):
    """Two columns: the tokens of a conversation, and 1 for each token of an answer."""

    adds_bos = True

    def texts(self, row: Row) -> Sequence[str]:
        return row[1::2]

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Return the tokens of each row up to the end of its last answer, and 1 for each target."""
        _check_tokenizer(tokenizer)
        rendered = [_render(list(messages(row)), tokenizer) for row in rows]
        batch = tokenizer.encode_batch([chat for chat, _ in rendered])
        encoded = []
        for (chat, begins), tokens in zip(rendered, batch, strict=True):
            is_plain = chat.ordinary and not tokenizer.literal
            located = (tokens.ids, tokens.offsets) if is_plain else tokenizer.encode_with_offsets(chat)
            ids, starts = _answer_starts(chat, begins, *located, tokenizer)
            ids, loss_mask = _mark_answers(ids, starts, tokenizer)
            row = tokenizer.with_bos(ids)
            loss_mask = [0] * (len(row) - len(ids)) + loss_mask
            loss_mask[0] = 0  # the first token is never a target
            encoded.append([row, loss_mask])
        return encoded

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        return Sequences(columns[0], loss_mask=columns[1])


def messages(row: Row) -> Iterator[Message]:
    for role, content in zip(row[::2], row[1::2], strict=True):
        yield {"role": role, "content": content}


def _render(conversation: Sequence[Message], tokenizer: Tokenizer) -> tuple[ChatPrompt, list[int]]:
    """Return the rendered conversation, and the character positions at which answers begin."""
    chat, begins = tokenizer.chat(conversation, answered=True), []
    for at, message in enumerate(conversation):
        if message["role"] == ASSISTANT:
            question = tokenizer.chat(conversation[:at])
            if not chat.startswith(question):
                raise ValueError(
                    "the chat template renders earlier turns differently once others follow: give "
                    "dialogues of one question and one answer"
                )
            begins.append(len(question))
    return chat, begins


def _answer_starts(
    chat: ChatPrompt,
    begins: Sequence[int],
    ids: list[int],
    offsets: Sequence[tuple[int, int]],
    tokenizer: Tokenizer,
) -> tuple[list[int], list[int]]:
    """Return the tokens of the text, and the token positions at which answers begin."""
    if not any(start < begin < end for begin in begins for start, end in offsets):
        starts = [start for start, _ in offsets]
        return ids, [bisect_left(starts, begin) for begin in begins]
    parts = [chat[begin:end] for begin, end in pairwise((0, *begins, len(chat)))]
    ids_by_part = [tokenizer.encode_with_offsets(part)[0] for part in parts]
    return [token for ids in ids_by_part for token in ids], list(accumulate(map(len, ids_by_part[:-1])))


def _mark_answers(ids: list[int], begins: Sequence[int], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the tokens up to the end of the last answer, and 1 for each target."""
    loss_mask, end = [0] * len(ids), 0
    for begin, limit in zip(begins, [*begins[1:], len(ids)], strict=True):
        ends = [at for at in range(begin, limit) if ids[at] in tokenizer.eos_ids]
        if not ends:
            raise ValueError(
                "the chat template does not end answers with an EOS token: a model could not learn to stop"
            )
        end = ends[0] + 1
        loss_mask[begin:end] = [1] * (end - begin)
    return ids[:end], loss_mask[:end]


def _check_tokenizer(tokenizer: Tokenizer) -> None:
    if tokenizer.right_to_left:
        raise ValueError("a right-to-left model cannot learn conversations: train a left-to-right one")
    if tokenizer.chat_template is None:
        raise ValueError(
            "conversations need a chat template, but the vocabulary has none: start from a "
            'chat model ([model] from), or choose kind = "dialogues"'
        )


@dataclass(frozen=True, kw_only=True)
class ChatJSONL(JSONObjects):
    """Conversations as JSON lines, each with a list of messages. Only the assistant's messages are learnt.

    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    """

    messages: str = "messages"
    """The field with the list of messages, each with a "role" and a "content"."""

    row_format = Chats()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the conversations of a file: messages up to the last one of the assistant."""
        for where, record in self.objects(path, advance):
            conversation = _read_messages(json_field(record, self.messages, where), where)
            answers = [at for at, (role, _) in enumerate(conversation) if role == ASSISTANT]
            if not answers:
                raise ValueError(
                    f"{where}: no message has the role {ASSISTANT!r}: there is no answer to learn"
                )
            yield tuple(part for message in conversation[: answers[-1] + 1] for part in message)


def _read_messages(value: Any, where: str) -> list[tuple[str, str]]:
    pairs = []
    for message in value if isinstance(value, list) else [value]:
        pair = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if not all(isinstance(text, str) for text in pair):
            raise ValueError(
                f'{where}: messages must be a list of objects with a "role" and a "content", all strings; '
                f"found {message!r:.60}"
            )
        pairs.append((check_surrogates(str(pair[0]), where), check_surrogates(str(pair[1]), where)))
    return pairs


@dataclass(frozen=True, kw_only=True)
class ChatLines(MarkedLines):
    """One dialogue per line, turns separated by a mark: user, assistant, … Only the answers are learnt.

        u₁ __eou__ u₂ __eou__ u₃ __eou__   →   user: u₁, assistant: u₂

    A last turn without an answer is left out.
    """

    system: str | None = None
    """The system message of every conversation; None: the template's default."""

    row_format = Chats()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        system = () if self.system is None else ("system", self.system)
        for turns in self.dialogues(path, advance):
            pairs = zip(turns[::2], turns[1::2], strict=False)
            yield system + tuple(text for user, answer in pairs for text in (USER, user, ASSISTANT, answer))
