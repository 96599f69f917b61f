"""Tokenizer of a GGUF file, built from the vocabulary in its metadata.

    tokenizer.ggml.model = "gpt2"    byte-level BPE: `merges` in order of rank, pre-tokenizer named by `pre`
    tokenizer.ggml.model = "llama"   SentencePiece BPE: two neighbours merge if together they are a token,
                                     highest score first; unknown characters become byte tokens

Keys and their defaults have llama.cpp's meaning. The names of pre-tokenizers are llama.cpp's, the patterns
are those of the models' own tokenizers; GPT-2's pattern: Radford et al. 2019, section 2.2 (papers.bib:
radford2019language). SentencePiece: Kudo and Richardson 2018, section 3 (papers.bib: kudo2018sentencepiece).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.tokenizer_file import library_errors

MAX_TOKEN_CHARS = 10_000
"""Limit, because every split of a token into two parts is tried."""
_TYPE_NAMES: dict[type[Any], str] = {str: "strings", Integral: "whole numbers", Real: "numbers"}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6

# Tokens that end a turn. Files of chat models may name only the end of a document as EOS.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|end|>", "<end_of_turn>", "<turn|>", "<EOT>")


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}"
_QWEN2 = rf"{_WORDS}|\p{{N}}|{_MARKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_at(*patterns: str) -> PreTokenizer:
    """Split at each match of the first pattern, then the rest at the second, and so on."""
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


_gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2])
_llama3 = _split_at(_LLAMA3)
_qwen2 = _split_at(_QWEN2)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _split_at(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "command-r": _digits,
    "dbrx": _llama3,
    "deepseek-r1-qwen": _qwen2,
    "falcon": _split_at(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "falcon3": _llama3,
    "gpt-2": _gpt2,
    "llama-bpe": _llama3,
    "llama-v3": _llama3,
    "llama3": _llama3,
    "mpt": _gpt2,
    "olmo": _gpt2,
    "phi-2": _gpt2,
    "qwen2": _qwen2,
    "refact": _digits,
    "smaug-bpe": _llama3,
    "smollm": _digits,
    "stablelm2": _qwen2,
    "starcoder": _digits,
    "tekken": _split_at(_TEKKEN),
}

IGNORE_MERGES = frozenset({"falcon3", "llama-bpe", "llama-v3", "llama3", "tekken"})
"""Values of `pre` whose models take a word that is a token without merging, and prepend BOS."""


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that `metadata` describes; ValueError if a key is missing or a kind is unknown."""
    facts = _Metadata(metadata)
    build = _KINDS.get(str(facts.get("model")))
    if build is None:
        raise ValueError(
            f"tokenizer.ggml.model is {facts.get('model')!r}; known are {', '.join(map(repr, _KINDS))}"
        )
    with library_errors("tokenizer.ggml.tokens"):
        backend = build(facts)
        _add_special_tokens(backend, facts)
    bos_id, eos_id, template = facts.bos_id, facts.eos_id, facts.chat_template or ""
    turns = (facts.vocabulary.get(token) for token in _ENDS if token in template)
    ends = (eos_id, facts.token("eot_token_id"), facts.token("eom_token_id"), *turns)
    return Tokenizer(
        backend,
        bos_id=bos_id,
        eos_ids=frozenset(token for token in ends if token is not None),
        add_bos=bos_id is not None and bool(facts.get("add_bos_token", facts.adds_bos)),
        chat_template=facts.chat_template,
        bos_token="" if bos_id is None else facts.tokens[bos_id],
        eos_token="" if eos_id is None else facts.tokens[eos_id],
    )


class _Metadata:
    """The checked metadata under tokenizer.*."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        # An empty token cannot be looked up; llama.cpp names it so.
        self.tokens = [token or f"[EMPTY_{at}]" for at, token in enumerate(self.listed("tokens", str))]
        longest = max(map(len, self.tokens), default=0)
        if longest > MAX_TOKEN_CHARS:
            raise ValueError(
                f"tokenizer.ggml.tokens: a token has {longest:,} characters; the limit is {MAX_TOKEN_CHARS:,}"
            )
        self.types = self.listed("token_type", Integral, [_NORMAL] * len(self.tokens))
        self.vocabulary = {token: at for at, token in enumerate(self.tokens)}
        if len(self.vocabulary) < len(self.tokens):
            duplicate = next(token for at, token in enumerate(self.tokens) if self.vocabulary[token] != at)
            raise ValueError(f"tokenizer.ggml.tokens has the token {duplicate!r} twice; the file is broken")
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
            raise ValueError(f"the GGUF metadata has no tokenizer.ggml.{key}")
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str | bytes):
            raise ValueError(f"tokenizer.ggml.{key} is {values!r:.40}, but must be a list")
        wrong = next((value for value in values if not isinstance(value, kind)), None)
        if wrong is not None:
            raise ValueError(f"tokenizer.ggml.{key} holds {wrong!r:.40}, but must hold {_TYPE_NAMES[kind]}")
        return list(values)

    def token(self, key: str, default: int | None = None) -> int | None:
        token = self.get(key, default)
        if token is None:
            return None
        if not isinstance(token, Integral):
            raise ValueError(f"tokenizer.ggml.{key} is {token!r:.40}, but must be a token id")
        return int(token) if 0 <= int(token) < len(self.tokens) else None


def _byte_level(facts: _Metadata) -> tokenizers.Tokenizer:
    pre = facts.pre
    if pre not in PRE_TOKENIZERS:
        raise ValueError(
            f"tokenizer.ggml.pre is {pre!r}; this version knows {', '.join(sorted(PRE_TOKENIZERS))}"
        )
    listed = facts.listed("merges", str)
    try:
        # Skip the first character: it may itself be a space.
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
    """Every split of a token into two other tokens, in order of falling score."""
    scores = facts.listed("scores", Real)
    if len(scores) != len(facts.tokens):
        raise ValueError(f"tokenizer.ggml.scores has {len(scores)} entries for {len(facts.tokens)} tokens")
    # Tokens that are not text never merge with text.
    excluded = {_UNKNOWN, _CONTROL, _BYTE}
    text = {token for token, kind in zip(facts.tokens, facts.types, strict=True) if kind not in excluded}
    merges = [
        (token[:cut], token[cut:], float(score))
        for token, score in zip(facts.tokens, scores, strict=True)
        if token in text
        for cut in range(1, len(token))
        if token[:cut] in text and token[cut:] in text
    ]
    merges.sort(key=lambda merge: (-merge[2], -len(merge[0])))
    return [(left, right) for left, right, _ in merges]


def _add_special_tokens(tokenizer: tokenizers.Tokenizer, facts: _Metadata) -> None:
    """Register control tokens as special (never shown) and user-defined tokens as added (shown)."""
    kinds = list(zip(facts.tokens, facts.types, strict=True))
    if facts.is_sentencepiece:
        kinds = [(token, _CONTROL if kind == _UNKNOWN else kind) for token, kind in kinds]
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        special = kind == _CONTROL
        add([AddedToken(t, special=special, normalized=False) for t, its_kind in kinds if its_kind == kind])
