"""Control tokens: keep user text from spelling the tokens that structure a prompt.

    template's own text    "<|im_end|>" is the token that ends a turn
    user text              "<|im_end|>" is ten characters

A chat template writes both into one string. Which characters are the user's is found by rendering the
messages a second time, with every visible character of the user replaced by a mask (a character that occurs
nowhere else). A control token in that second text is the template's own. If the template looks into the
messages (`'</think>' in content`), the two texts differ; then only what spells a control token in a message
is masked.

The text is then tokenized as a whole, by a copy of the tokenizer in which control tokens have secret names.
Ordinary messages get the ids that Hugging Face's `apply_chat_template` gives them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, SupportsIndex

import tokenizers
from tokenizers import AddedToken, models

Message = Mapping[str, str]

MARKER = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)
"""What a control token looks like that its file does not call special."""


class Span(NamedTuple):
    """Where a text spells a control token, and which."""

    start: int
    end: int
    token: str


class ChatPrompt(str):
    """A rendered chat that remembers which control tokens its template wrote: all others are user text.

    `Tokenizer.encode` reads it. Slices and what is appended (as user text) keep that; other operations of str
    return a plain string, whose control tokens are all read as such.
    """

    spans: tuple[Span, ...]
    """The control tokens of the template."""
    ordinary: bool
    """Whether there are no others in the text: then the tokenizer reads it as it is."""

    def __new__(cls, text: str, spans: Iterable[Span] = (), *, ordinary: bool = True) -> ChatPrompt:
        """The text, with the places of the template's control tokens."""
        prompt = super().__new__(cls, text)
        prompt.spans, prompt.ordinary = tuple(spans), ordinary
        return prompt

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        part = super().__getitem__(key)
        if not isinstance(key, slice):
            return part
        start, stop, step = key.indices(len(self))
        spans = [Span(a - start, b - start, name) for a, b, name in self.spans if start <= a and b <= stop]
        return ChatPrompt(part, spans if step == 1 else (), ordinary=self.ordinary and step == 1)

    def __add__(self, more: str) -> ChatPrompt:
        return ChatPrompt(super().__add__(more), self.spans, ordinary=False)


class ControlTokens:
    """The control tokens of one tokenizer, and texts in which only some places spell them.

    Control tokens are the added tokens that are special, and those that begin or end a text. `markers` are
    added tokens that are not called special but that the chat template writes: an assistant's message may
    spell them (reasoning models do), other messages may not.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, ends: frozenset[int], template: str | None) -> None:
        self._tokenizer = tokenizer
        self._added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        like = {at: it.content for at, it in self._added.items() if MARKER.fullmatch(it.content)}
        special = {it.content for it in self._added.values() if it.special}
        self.control = frozenset(special | {name for at, name in like.items() if at in ends})
        self.markers = frozenset(name for name in like.values() if name in (template or "")) - self.control
        self.names = self.control | self.markers

    def find(self, text: str) -> list[Span]:
        """The control tokens and markers that the tokenizer would read in a text."""
        if not self.names:
            return []
        found = self._finder.encode(text, add_special_tokens=False)
        names = map(self._finder.id_to_token, found.ids)  # `tokens` has the text, with spaces around it
        pairs = zip(found.offsets, names, strict=True)
        return [Span(*offsets, name) for offsets, name in pairs if name in self.names]

    def prompt(self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str]) -> ChatPrompt:
        """The rendered messages, with the control tokens that the template itself wrote."""
        text = render(messages)
        if not self.names:
            return ChatPrompt(text)
        mask = next(_unused_characters({*text, *_characters(messages)}))
        try:
            masked = render([self._all_masked(message, mask) for message in messages])
        except ValueError:  # a template may refuse what it does not know
            masked = ""
        if not _differ_only_in_mask(masked, text, mask):
            masked, back = self._names_masked(messages, render)
            text = masked.translate(back)
        spans = self.find(masked)
        return ChatPrompt(text, spans, ordinary=spans == self.find(text))

    def encode(self, text: str, spans: Iterable[Span]) -> tuple[list[int], list[tuple[int, int]]]:
        """The token ids of a text that spells control tokens at these places only, and their characters."""
        if not self.names:
            found = self._tokenizer.encode(text, add_special_tokens=False)
            return found.ids, found.offsets
        written, origin, done = "", list[int](), 0
        for start, end, token in (*spans, Span(len(text), len(text), "")):
            plain = text[done:start]
            # Whitespace around a token stays: the token may take it in.
            named = text[start:end].replace(token, self._secret[token]) if token else ""
            named = named if not token or self._secret[token] in named else self._secret[token]
            written += plain + named
            origin += [*range(done, start), *([start] * len(named))]
            done = end
        origin.append(len(text))
        found = self._renamed.encode(written, add_special_tokens=False)
        return found.ids, [(origin[start], max(origin[end], origin[start])) for start, end in found.offsets]

    @cached_property
    def _finder(self) -> tokenizers.Tokenizer:
        """Reads the added tokens of a text and nothing else."""
        finder = tokenizers.Tokenizer(models.BPE({}, []))
        if self._tokenizer.normalizer is not None:
            finder.normalizer = self._tokenizer.normalizer
        finder.add_tokens([_plain(it) for _, it in sorted(self._added.items())])
        return finder

    @cached_property
    def _secret(self) -> dict[str, str]:
        """A name for each control token that nobody can guess."""
        key = secrets.token_hex(16)
        return {name: f"\ue000{key}.{at}\ue001" for at, name in enumerate(sorted(self.names))}

    @cached_property
    def _renamed(self) -> tokenizers.Tokenizer:
        """The tokenizer with the same ids, in which control tokens have their secret names."""
        facts = json.loads(self._tokenizer.to_str())
        facts["post_processor"] = None
        _rename_tokens(facts["model"], self._secret)
        for token in facts["added_tokens"]:
            if token["content"] in self._secret:
                token |= {"content": self._secret[token["content"]], "normalized": False, "special": False}
        return tokenizers.Tokenizer.from_str(json.dumps(facts))

    def _all_masked(self, message: Message, mask: str) -> Message:
        """The message with a mask for each visible character; an assistant's markers stay."""
        kept = sorted(self.markers, key=len, reverse=True) if message["role"] == "assistant" else []
        split = re.compile("(" + "|".join(map(re.escape, kept)) + ")") if kept else None

        def masked(value: str) -> str:
            parts = split.split(value) if split is not None else [value]
            return "".join(part if part in kept else re.sub(r"\S", mask, part) for part in parts)

        return {key: value if key == "role" else masked(value) for key, value in message.items()}

    def _names_masked(
        self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str]
    ) -> tuple[str, dict[int, str]]:
        """The rendered messages with masks where they spell a control token, and the way back."""
        places = [
            {key: self._spelled(value) for key, value in message.items() if key != "role"}
            for message in messages
        ]
        hidden = {
            message[key][at]
            for message, found in zip(messages, places, strict=True)
            for key, some in found.items()
            for at in some
        }
        masks = dict(zip(sorted(hidden), _unused_characters(_characters(messages)), strict=False))
        masked = [
            {
                key: "".join(
                    masks[each] if at in found.get(key, ()) else each for at, each in enumerate(value)
                )
                for key, value in message.items()
            }
            for message, found in zip(messages, places, strict=True)
        ]
        return render(masked), {ord(mask): each for each, mask in masks.items()}

    def _spelled(self, value: str) -> frozenset[int]:
        """Characters to mask so that nothing in a text spells a control token, in capitals or without."""
        if not self.control:
            return frozenset()
        found = {match.start() for match in self._pattern.finditer(value)}
        for start, end, token in self.find(value):
            if token in self.control:
                found |= {at for at in range(start, end) if not value[at].isspace()}
        return frozenset(found)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = sorted(self.control, key=len, reverse=True)
        return re.compile(f"(?={'|'.join(map(re.escape, names))})", re.IGNORECASE)


def _differ_only_in_mask(masked: str, text: str, mask: str) -> bool:
    """Whether two renderings differ in masked characters alone."""
    return len(masked) == len(text) and all(
        one in (mask, other) for one, other in zip(masked, text, strict=True)
    )


def _characters(messages: Sequence[Message]) -> set[str]:
    return {each for message in messages for value in message.values() for each in value}


def _unused_characters(used: set[str]) -> Iterator[str]:
    """Private-use characters that do not occur."""
    for at in chain(range(0xE000, 0xF900), range(0xF0000, 0x10FFFE)):
        if chr(at) not in used:
            yield chr(at)
    raise ValueError("the messages use every private-use character of Unicode: leave some of them out")


def _plain(token: AddedToken) -> AddedToken:
    """The same token, found whatever the tokenizer does with special ones."""
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=False,
    )


def _rename_tokens(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Give tokens of a model (of tokenizer.json) other names: no text is made of the old ones any more."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(token, token): at for token, at in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        halves = (
            (it, tuple(it.split(" ", 1)) if isinstance(it, str) else tuple(it)) for it in model["merges"]
        )
        model["merges"] = [it for it, (a, b) in halves if not {a, b, a + b} & names.keys()]
