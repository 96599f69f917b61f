"""str ↔ token ids: the tokenizers of model files, vocabularies of one's own, chats, and text as it comes."""

from unspool.tokenization.chat_template import render_chat
from unspool.tokenization.detokenizer import IncrementalDetokenizer
from unspool.tokenization.gguf_tokenizer import codec_from_gguf
from unspool.tokenization.huggingface_tokenizer import codec_from_folder
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.vocabulary import (
    BPE,
    TEXTS,
    Characters,
    Separate,
    TextConfig,
    Words,
    characters,
    train_bpe,
    words,
)

__all__ = [
    "BPE",
    "TEXTS",
    "Characters",
    "IncrementalDetokenizer",
    "Separate",
    "TextConfig",
    "Tokenizer",
    "Words",
    "characters",
    "codec_from_folder",
    "codec_from_gguf",
    "render_chat",
    "train_bpe",
    "words",
]
