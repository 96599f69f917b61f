"""The codec of a GGUF file, whose metadata lists the vocabulary instead of carrying a tokenizer.json.

    tokenizer.ggml.model = "gpt2"    byte-level BPE: `merges` in order of rank, cuts named by `pre`
    tokenizer.ggml.model = "llama"   SentencePiece BPE: two neighbours join when together they are a token,
                                     highest score first; a character that is no token becomes its bytes

The meaning of the keys is llama.cpp's, and so are the values of those that are missing.
SentencePiece: Kudo and Richardson 2018, section 3 (papers.bib: kudo2018sentencepiece).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.tokenizer_file import library_errors
from unspool.tokenization.vocabulary import IGNORE_MERGES, PRE_TOKENIZERS

MAX_TOKEN_CHARS = 10_000
"""Characters: every way to cut a token in two is looked at."""
_ACCEPTED: dict[type[Any], tuple[type[Any], ...]] = {
    str: (str,),
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
}
_WORDS: dict[type[Any], str] = {str: "strings", int: "whole numbers", float: "numbers"}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6

# Tokens that end a turn. A chat model may write one where its file names only the end of a document.
_TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<EOT>",
)


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The codec that `metadata` describes; ValueError where a key is missing or a kind is not known."""
    facts = _Metadata(metadata)
    build = _KINDS.get(str(facts.get("model")))
    if build is None:
        raise ValueError(
            f"tokenizer.ggml.model is {facts.get('model')!r}; known are {', '.join(map(repr, _KINDS))}"
        )
    with library_errors("tokenizer.ggml.tokens"):
        tokenizer = build(facts)
        _add_special_tokens(tokenizer, facts)
    bos_id, eos_id = facts.bos_id, facts.eos_id
    return Tokenizer(
        tokenizer,
        bos_id=bos_id,
        eos_ids=_eos_ids(facts),
        add_bos=bos_id is not None and bool(facts.get("add_bos_token", facts.adds_bos)),
        chat_template=facts.chat_template,
        bos_token="" if bos_id is None else facts.tokens[bos_id],
        eos_token="" if eos_id is None else facts.tokens[eos_id],
    )


class _Metadata:
    """The metadata under tokenizer.*, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        # An empty token cannot be looked up; llama.cpp gives it this name.
        self.tokens = [token or f"[EMPTY_{at}]" for at, token in enumerate(self.listed("tokens", str))]
        longest = max(map(len, self.tokens), default=0)
        if longest > MAX_TOKEN_CHARS:
            raise ValueError(
                f"tokenizer.ggml.tokens: a token has {longest:,} characters; the limit is {MAX_TOKEN_CHARS:,}"
            )
        self.types = self.listed("token_type", int, [_NORMAL] * len(self.tokens))
        self.vocabulary = {token: at for at, token in enumerate(self.tokens)}
        if len(self.vocabulary) < len(self.tokens):
            twice = next(token for at, token in enumerate(self.tokens) if self.vocabulary[token] != at)
            raise ValueError(f"tokenizer.ggml.tokens has the token {twice!r} twice; the file is broken")
        if len(self.types) != len(self.tokens):
            raise ValueError(
                f"tokenizer.ggml.token_type has {len(self.types)} entries for {len(self.tokens)} tokens"
            )
        self.pre = self.get("pre", "default")
        if not isinstance(self.pre, str):
            raise ValueError(f"tokenizer.ggml.pre is {self.pre!r:.40}, but must be a string")
        self.is_sentencepiece = self.get("model") == "llama"
        self.adds_bos = self.is_sentencepiece or self.pre in IGNORE_MERGES
        self.bos_id = self.token("bos_token_id", 1 if self.is_sentencepiece else None)
        self.eos_id = self.token("eos_token_id", 2 if self.is_sentencepiece else None)
        template = metadata.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) else None

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def listed(self, key: str, kind: type[Any], default: list[Any] | None = None) -> list[Any]:
        values = self.get(key, default)
        if values is None:
            raise ValueError(f"the GGUF metadata has no tokenizer.ggml.{key}, so that it has no tokenizer")
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str | bytes):
            raise ValueError(f"tokenizer.ggml.{key} is {values!r:.40}, but must be a list")
        wrong = next((it for it in values if not isinstance(it, _ACCEPTED[kind])), None)
        if wrong is not None:
            raise ValueError(f"tokenizer.ggml.{key} holds {wrong!r:.40}, but must hold {_WORDS[kind]}")
        return list(values)

    def token(self, key: str, default: int | None = None) -> int | None:
        found = self.get(key, default)
        if found is not None and not isinstance(found, _ACCEPTED[int]):
            raise ValueError(f"tokenizer.ggml.{key} is {found!r:.40}, but must be a token id")
        return int(found) if found is not None and 0 <= found < len(self.tokens) else None


def _byte_level(facts: _Metadata) -> tokenizers.Tokenizer:
    pre = facts.pre
    if pre not in PRE_TOKENIZERS:
        raise ValueError(
            f"tokenizer.ggml.pre is {pre!r}; this version knows {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    listed = facts.listed("merges", str)
    try:
        # The space between the halves is not the first character, which may be one itself.
        merges = [(merge[: (at := merge.index(" ", 1))], merge[at + 1 :]) for merge in listed]
        model = models.BPE(facts.vocabulary, merges, ignore_merges=pre in IGNORE_MERGES)
    except Exception as error:  # tokenizers raises nothing more precise
        raise ValueError(f"tokenizer.ggml.merges does not fit tokenizer.ggml.tokens: {error}") from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(facts: _Metadata) -> tokenizers.Tokenizer:
    unknown = facts.token("unknown_token_id", 0)
    model = models.BPE(
        facts.vocabulary,
        _merges(facts),
        unk_token=None if unknown is None else facts.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(model)
    leading = bool(facts.get("add_space_prefix", True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if leading else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if leading else steps)
    return tokenizer


_KINDS: dict[str, Callable[[_Metadata], tokenizers.Tokenizer]] = {
    "gpt2": _byte_level,
    "llama": _sentencepiece,
}


def _merges(facts: _Metadata) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the token with the highest score first."""
    scores = facts.listed("scores", float)
    if len(scores) != len(facts.tokens):
        raise ValueError(f"tokenizer.ggml.scores has {len(scores)} entries for {len(facts.tokens)} tokens")
    # Text must not be joined to what stands for no text.
    apart = {_UNKNOWN, _CONTROL, _BYTE}
    text = {token for token, kind in zip(facts.tokens, facts.types, strict=True) if kind not in apart}
    found = [
        (token[:cut], token[cut:], float(score))
        for token, score in zip(facts.tokens, scores, strict=True)
        if token in text
        for cut in range(1, len(token))
        if token[:cut] in text and token[cut:] in text
    ]
    found.sort(key=lambda merge: (-merge[2], -len(merge[0])))
    return [(left, right) for left, right, _ in found]


def _add_special_tokens(tokenizer: tokenizers.Tokenizer, facts: _Metadata) -> None:
    """Control tokens are read whole and never shown; user-defined ones are read whole and shown."""
    kinds = list(zip(facts.tokens, facts.types, strict=True))
    if facts.is_sentencepiece:
        kinds = [(token, _CONTROL if kind == _UNKNOWN else kind) for token, kind in kinds]
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        special = kind == _CONTROL
        add([AddedToken(t, special=special, normalized=False) for t, its_kind in kinds if its_kind == kind])


def _eos_ids(facts: _Metadata) -> frozenset[int]:
    """The end of a text, and of a turn where the chat template says how a turn ends."""
    named = (facts.eos_id, facts.token("eot_token_id"), facts.token("eom_token_id"))
    template = facts.chat_template or ""
    turns = (facts.vocabulary.get(token) for token in _TURN_ENDS if token in template)
    return frozenset(token for token in (*named, *turns) if token is not None)
