"""str ↔ token ids: the tokenizers of model files, vocabularies of one's own, chats, and text as it comes."""

from unspool.text.chat import render_chat
from unspool.text.codec import Codec
from unspool.text.gguf_tokenizer import codec_from_gguf
from unspool.text.huggingface_tokenizer import codec_from_folder
from unspool.text.reader import Reader
from unspool.text.vocabulary import (
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
    "Codec",
    "Reader",
    "Separate",
    "TextConfig",
    "Words",
    "characters",
    "codec_from_folder",
    "codec_from_gguf",
    "render_chat",
    "train_bpe",
    "words",
]
