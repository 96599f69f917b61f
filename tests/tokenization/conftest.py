"""Small tokenizers with every kind of decoder that models use."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from unspool.tokenization import Tokenizer, tokenizer_from_gguf, train_bpe, train_words

LINES = [
    "the cat sat on the mat",
    "the dog ate the café's crème brûlée",
    "日本語 and 👍🏽 emoji",
    "a\n\n  b\tc 12 34",
]


def byte_level() -> Tokenizer:
    tokenizer = train_bpe(LINES * 3, 320)
    tokenizer.backend.add_tokens(
        [AddedToken("<think>", normalized=False), AddedToken("é日 x", normalized=False)]
    )
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As in Llama: a stripped leading space, and byte tokens for unknown characters."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    text = ["▁", "a", "b", "é", "▁a", "ab", "▁ab", "▁▁", "the", "▁the", "t", "h", "e", "th", "."]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *text, "<think>"]
    return tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * 259 + [-float(at) for at in range(len(text))] + [0.0],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(text) + [4],
        }
    )


def _word_level(tokens: list[str], decoder: decoders.Decoder | None) -> Tokenizer:
    vocabulary = {token: at for at, token in enumerate(["<unk>", *tokens])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>"])
    if decoder is not None:
        tokenizer.decoder = decoder
    return Tokenizer(tokenizer)


def metaspace() -> Tokenizer:
    return _word_level(["▁the", "▁", "▁▁", "cat", "s▁", "é", "日本", "."], decoders.Metaspace())


def word_pieces() -> Tokenizer:
    return _word_level(
        ["the", "##s", "cat", "##é", "日", ".", "##.", "n't"], decoders.WordPiece(cleanup=False)
    )


def suffixes() -> Tokenizer:
    return _word_level(["the</w>", "c", "at</w>", "é", "日</w>", ".</w>"], decoders.BPEDecoder())


TOKENIZERS = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "metaspace": metaspace,
    "word_pieces": word_pieces,
    "suffixes": suffixes,
    "words": lambda: train_words(LINES),
}


@pytest.fixture(scope="session", params=list(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]()


@pytest.fixture(scope="session", name="byte_level")
def byte_level_fixture() -> Tokenizer:
    return byte_level()


@pytest.fixture(scope="session", name="byte_fallback")
def byte_fallback_fixture() -> Tokenizer:
    return byte_fallback()
