"""Tokenization: tokenizers of model files, trained vocabularies, chat templates, incremental detokenizer."""

from unspool.tokenization.chat_template import render_chat
from unspool.tokenization.detokenizer import IncrementalDetokenizer
from unspool.tokenization.gguf_tokenizer import tokenizer_from_gguf
from unspool.tokenization.huggingface_tokenizer import tokenizer_from_folder
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.vocabulary import (
    BPE,
    TOKENIZER_CONFIGS,
    Characters,
    Separate,
    TokenizerConfig,
    Words,
    train_bpe,
    train_characters,
    train_words,
)

__all__ = [
    "BPE",
    "TOKENIZER_CONFIGS",
    "Characters",
    "IncrementalDetokenizer",
    "Separate",
    "Tokenizer",
    "TokenizerConfig",
    "Words",
    "render_chat",
    "tokenizer_from_folder",
    "tokenizer_from_gguf",
    "train_bpe",
    "train_characters",
    "train_words",
]
