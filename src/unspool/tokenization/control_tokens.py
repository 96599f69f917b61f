"""Control tokens: prevent prompt injection, where user text spells the tokens that structure a prompt.

    text of the template    "<|im_end|>" is the token that ends a turn
    text of the user        "<|im_end|>" is ten characters

A chat template writes both into one string. To tell them apart, the messages are rendered a second time with
every visible user character replaced by a mask (a character that occurs nowhere else). A control token in
that second rendering was written by the template. If the template inspects the messages (`'</think>' in
content`), the two renderings differ; then only the spellings of control tokens in messages are masked.

The text is then tokenized in one piece, by a copy of the tokenizer in which control tokens have secret names.
Ordinary messages get the same ids as from Hugging Face's `apply_chat_template`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain, compress
from typing import Any, NamedTuple, SupportsIndex

import tokenizers
from tokenizers import AddedToken, models

Message = Mapping[str, Any]
Chat = Mapping[str, Any]
"""What a template reads: `messages`, `tools` and other `variables`; nested lists and dicts of text."""

MARKER = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)
"""Form of control tokens that the tokenizer file does not mark as special."""


class Span(NamedTuple):
    """A control token and its position in a text."""

    start: int
    end: int
    token: str


class ChatPrompt(str):
    """A rendered chat with the positions of the template's control tokens; all others are user text.

    `Tokenizer.encode` uses the positions. Slicing and appending (of user text) preserve them; other str
    operations return a plain string, in which every spelled control token counts.
    """

    spans: tuple[Span, ...]
    """The control tokens of the template."""
    ordinary: bool
    """Whether the text spells no other control tokens; then it is tokenized directly."""

    def __new__(cls, text: str, spans: Iterable[Span] = (), *, ordinary: bool = True) -> ChatPrompt:
        """Create the text with the spans of the template's control tokens."""
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
    """The control tokens of one tokenizer.

    Control tokens are the special added tokens, BOS and EOS. `markers` are added tokens that are not special
    but that the chat template writes: assistant messages may spell them (reasoning models do), others not.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, ends: frozenset[int], template: str | None) -> None:
        self._tokenizer = tokenizer
        self._added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        names = {at: token.content for at, token in self._added.items()}
        marker_like = {at: name for at, name in names.items() if MARKER.fullmatch(name)}
        special = {token.content for token in self._added.values() if token.special}
        self.control = frozenset(special | {name for at, name in marker_like.items() if at in ends})
        in_template = frozenset(name for name in marker_like.values() if name in (template or ""))
        self.markers = in_template - self.control
        self.names = self.control | self.markers

    def find(self, text: str) -> list[Span]:
        """The control tokens and markers that the tokenizer would find in a text."""
        if not self.names:
            return []
        encoding = self._finder.encode(text, add_special_tokens=False)
        names = map(self._finder.id_to_token, encoding.ids)  # `encoding.tokens` includes adjacent spaces
        pairs = zip(encoding.offsets, names, strict=True)
        return [Span(*offsets, name) for offsets, name in pairs if name in self.names]

    def prompt(self, chat: Chat, render: Callable[[Chat], str]) -> ChatPrompt:
        """Render the chat and locate the control tokens that the template wrote."""
        text = render(chat)
        if not self.names:
            return ChatPrompt(text)
        for key in _keys(chat):
            if self.find(key) or self._positions_to_mask(key):
                raise ValueError(f"the name {key!r:.80} contains a control token of the model: rename it")
        mask = next(_unused_characters({*text, *_characters(chat)}))
        try:
            masked = render(_map_text(chat, partial(self._mask_all, mask)))
        except ValueError:  # a template may reject unknown content
            masked = ""
        has_same_form = len(masked) == len(text) and all(
            one in (mask, other) for one, other in zip(masked, text, strict=True)
        )
        if not has_same_form:
            masked, unmask = self._mask_control_tokens(chat, render)
            text = masked.translate(unmask)
        spans = self.find(masked)
        return ChatPrompt(text, spans, ordinary=spans == self.find(text))

    def encode(self, text: str, spans: Iterable[Span]) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids and offsets of a text in which only `spans` are control tokens."""
        if not self.names:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            return encoding.ids, encoding.offsets
        renamed, origin, done = "", list[int](), 0
        for start, end, token in (*spans, Span(len(text), len(text), "")):
            plain = text[done:start]
            # Whitespace around a token stays: the token may absorb it.
            secret = text[start:end].replace(token, self._secret[token]) if token else ""
            secret = secret if not token or self._secret[token] in secret else self._secret[token]
            renamed += plain + secret
            origin += [*range(done, start), *([start] * len(secret))]
            done = end
        origin.append(len(text))
        encoding = self._renamed.encode(renamed, add_special_tokens=False)
        offsets = [(origin[start], max(origin[end], origin[start])) for start, end in encoding.offsets]
        return encoding.ids, offsets

    @cached_property
    def _finder(self) -> tokenizers.Tokenizer:
        """A tokenizer that finds only added tokens."""
        finder = tokenizers.Tokenizer(models.BPE({}, []))
        if self._tokenizer.normalizer is not None:
            finder.normalizer = self._tokenizer.normalizer
        finder.add_tokens([_plain(token) for _, token in sorted(self._added.items())])
        return finder

    @cached_property
    def _secret(self) -> dict[str, str]:
        """A random, unguessable name for each control token."""
        key = secrets.token_hex(16)
        return {name: f"\ue000{key}.{at}\ue001" for at, name in enumerate(sorted(self.names))}

    @cached_property
    def _renamed(self) -> tokenizers.Tokenizer:
        """The same tokenizer and ids, with secret names for control tokens."""
        spec = json.loads(self._tokenizer.to_str())
        spec["post_processor"] = None
        _rename_tokens(spec["model"], self._secret)
        for token in spec["added_tokens"]:
            if token["content"] in self._secret:
                token |= {"content": self._secret[token["content"]], "normalized": False, "special": False}
        return tokenizers.Tokenizer.from_str(json.dumps(spec))

    def _mask_all(self, mask: str, text: str, role: str) -> str:
        """The text with every visible character masked, except markers of an assistant."""
        kept = sorted(self.markers, key=len, reverse=True) if role == "assistant" else []
        parts = re.split(f"({'|'.join(map(re.escape, kept))})", text) if kept else [text]
        return "".join(part if part in kept else re.sub(r"\S", mask, part) for part in parts)

    def _mask_control_tokens(self, chat: Chat, render: Callable[[Chat], str]) -> tuple[str, dict[int, str]]:
        """The rendered chat with spelled control tokens masked, and the table that undoes the masks."""
        hidden: set[str] = set()

        def collect(text: str, role: str) -> str:  # noqa: ARG001
            hidden.update(text[at] for at in self._positions_to_mask(text))
            return text

        def hide(text: str, role: str) -> str:  # noqa: ARG001
            positions = self._positions_to_mask(text)
            return "".join(masks[each] if at in positions else each for at, each in enumerate(text))

        _map_text(chat, collect)
        masks = dict(zip(sorted(hidden), _unused_characters(_characters(chat)), strict=False))
        return render(_map_text(chat, hide)), {ord(mask): each for each, mask in masks.items()}

    def _positions_to_mask(self, value: str) -> frozenset[int]:
        """Indices to mask so that no part of a text spells a control token, in any letter case."""
        if not self.control:
            return frozenset()
        indices = {match.start() for match in self._pattern.finditer(value)}
        for start, end, token in self.find(value):
            if token in self.control:
                indices |= {at for at in range(start, end) if not value[at].isspace()}
        return frozenset(indices)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = sorted(self.control, key=len, reverse=True)
        return re.compile(f"(?={'|'.join(map(re.escape, names))})", re.IGNORECASE)


def _map_text(chat: Chat, change: Callable[[str, str], str]) -> dict[str, Any]:
    """Apply `change(text, role)` to every string of a chat, except keys and the roles of messages."""

    def changed(value: Any, role: str) -> Any:
        if isinstance(value, str):
            return change(value, role)
        if isinstance(value, Mapping):
            return {key: changed(each, role) for key, each in value.items()}
        return [changed(each, role) for each in value] if isinstance(value, list | tuple) else value

    messages = [
        {key: value if key == "role" else changed(value, message["role"]) for key, value in message.items()}
        for message in chat["messages"]
    ]
    return {"messages": messages} | {
        key: changed(value, "") for key, value in chat.items() if key != "messages"
    }


def _keys(value: Any) -> Iterator[str]:
    """All keys of nested dicts."""
    if isinstance(value, Mapping):
        yield from value
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _keys(each)


def _characters(chat: Chat) -> set[str]:
    return set(json.dumps(_map_text(chat, lambda text, _: text), ensure_ascii=False))


def _unused_characters(used: set[str]) -> Iterator[str]:
    """Private-use characters that are not in `used`."""
    for at in chain(range(0xE000, 0xF900), range(0xF0000, 0x10FFFE)):
        if chr(at) not in used:
            yield chr(at)
    raise ValueError("the messages use every private-use character of Unicode: remove some of them")


def _plain(token: AddedToken) -> AddedToken:
    """The same token without `special`, so that it is found even if special tokens are not encoded."""
    options = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(token.content, **options, special=False)


def _rename_tokens(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename tokens in the model of a tokenizer.json, so that text no longer produces the old names."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(token, token): at for token, at in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        merges = model["merges"]
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges]
        kept = [not {a, b, a + b} & names.keys() for a, b in pairs]
        model["merges"] = list(compress(merges, kept))
