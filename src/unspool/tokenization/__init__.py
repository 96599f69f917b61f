"""Tokenization: tokenizers of model files, trained vocabularies, chat templates, incremental detokenizer."""

from unspool.tokenization.chat_template import render_chat as render_chat
from unspool.tokenization.detokenizer import IncrementalDetokenizer as IncrementalDetokenizer
from unspool.tokenization.gguf_tokenizer import tokenizer_from_gguf as tokenizer_from_gguf
from unspool.tokenization.huggingface_tokenizer import tokenizer_from_folder as tokenizer_from_folder
from unspool.tokenization.tokenizer import Tokenizer as Tokenizer
from unspool.tokenization.vocabulary import (
    BPE as BPE,
    TOKENIZER_CONFIGS as TOKENIZER_CONFIGS,
    Characters as Characters,
    Separate as Separate,
    TokenizerConfig as TokenizerConfig,
    Words as Words,
    train_bpe as train_bpe,
    train_characters as train_characters,
    train_words as train_words,
)
