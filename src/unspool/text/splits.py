"""How text is cut before byte-level BPE joins bytes: no token reaches over a cut.

Every vocabulary was learnt with its own cuts, and reads text well with these only. A GGUF file names them
(`tokenizer.ggml.pre`); the names are llama.cpp's, the patterns those of the models' own tokenizers.

GPT-2's cuts: Radford et al. 2019, section 2.2 (papers.bib: radford2019language).
"""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

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


def _cut(*patterns: str) -> PreTokenizer:
    """Cut at every match of the first pattern, then what is left at the second, and so on."""
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2])
_llama3 = _cut(_LLAMA3)
_qwen2 = _cut(_QWEN2)

SPLITS: dict[str, PreTokenizer] = {
    "default": _cut(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "command-r": _digits,
    "dbrx": _llama3,
    "deepseek-r1-qwen": _qwen2,
    "falcon": _cut(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
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
    "tekken": _cut(_TEKKEN),
}

# A word that is a token as it stands is not joined from its bytes; and the text begins with the first token.
WHOLE_WORDS = frozenset({"falcon3", "llama-bpe", "llama-v3", "llama3", "tekken"})
