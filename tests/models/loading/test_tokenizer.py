from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from unspool.models.loading.tokenizer import (
    load_gguf_tokenizer,
    load_huggingface_tokenizer,
    load_run_tokenizer,
    save_tokenizer,
)
from unspool.tokenization.tokenizer import Tokenizer

BYTE_LEVEL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
}


@dataclass
class File:
    """As much of a GGUF file as a tokenizer needs."""

    metadata: dict = field(default_factory=lambda: dict(BYTE_LEVEL))
    path: Path = Path("x.gguf")


def codec():
    return Tokenizer(
        tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")), eos_ids=frozenset({1})
    )


def test_gguf_by_hand():
    text = load_gguf_tokenizer(File())
    assert text.encode("abb") == [3, 2]
    assert text.eos_ids == {0}


@pytest.mark.parametrize(
    "metadata", [{}, {"tokenizer.ggml.model": "none"}, {"tokenizer.ggml.model": "no_vocab"}]
)
def test_a_gguf_file_may_have_no_tokenizer(metadata):
    assert load_gguf_tokenizer(File(metadata)) is None


@pytest.mark.parametrize(
    "change",
    [{"tokenizer.ggml.model": "rwkv"}, {"tokenizer.ggml.pre": "klingon"}, {"tokenizer.ggml.tokens": None}],
)
def test_a_tokenizer_that_cannot_be_read_names_the_file(change):
    with pytest.raises(ValueError, match=r"x\.gguf: the tokenizer cannot be read: "):
        load_gguf_tokenizer(File(BYTE_LEVEL | change))


def test_a_hugging_face_folder_may_have_no_tokenizer(tmp_path):
    assert load_huggingface_tokenizer(tmp_path) is None
    codec().backend.save(str(tmp_path / "tokenizer.json"))
    assert load_huggingface_tokenizer(tmp_path).encode("a") == [0]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="the tokenizer cannot be read"):
        load_huggingface_tokenizer(tmp_path)


def test_a_run_folder_gets_back_what_was_saved(tmp_path):
    assert load_run_tokenizer(tmp_path) is None
    save_tokenizer(None, tmp_path)
    assert list(tmp_path.iterdir()) == []
    save_tokenizer(codec(), tmp_path)
    assert load_run_tokenizer(tmp_path).eos_ids == {1}


def test_half_a_tokenizer_is_an_error(tmp_path):
    save_tokenizer(codec(), tmp_path)
    (tmp_path / "text.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.json"):
        load_run_tokenizer(tmp_path)


def test_only_a_codec_can_be_saved(tmp_path):
    with pytest.raises(TypeError, match="only a Tokenizer can be saved with a model, not a str"):
        save_tokenizer("abc", tmp_path)
