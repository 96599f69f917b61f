from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from unspool.models.loading.tokenizer import save_text, text_of_gguf, text_of_huggingface, text_of_run
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
    text = text_of_gguf(File())
    assert text.encode("abb") == [3, 2]
    assert text.eos_ids == {0}


@pytest.mark.parametrize(
    "metadata", [{}, {"tokenizer.ggml.model": "none"}, {"tokenizer.ggml.model": "no_vocab"}]
)
def test_a_gguf_file_may_have_no_tokenizer(metadata):
    assert text_of_gguf(File(metadata)) is None


@pytest.mark.parametrize(
    "change",
    [{"tokenizer.ggml.model": "rwkv"}, {"tokenizer.ggml.pre": "klingon"}, {"tokenizer.ggml.tokens": None}],
)
def test_a_tokenizer_that_cannot_be_read_names_the_file(change):
    with pytest.raises(ValueError, match=r"x\.gguf: the tokenizer cannot be read: "):
        text_of_gguf(File(BYTE_LEVEL | change))


def test_a_hugging_face_folder_may_have_no_tokenizer(tmp_path):
    assert text_of_huggingface(tmp_path) is None
    codec().tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert text_of_huggingface(tmp_path).encode("a") == [0]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="the tokenizer cannot be read"):
        text_of_huggingface(tmp_path)


def test_a_run_folder_gets_back_what_was_saved(tmp_path):
    assert text_of_run(tmp_path) is None
    save_text(None, tmp_path)
    assert list(tmp_path.iterdir()) == []
    save_text(codec(), tmp_path)
    assert text_of_run(tmp_path).eos_ids == {1}


def test_half_a_tokenizer_is_an_error(tmp_path):
    save_text(codec(), tmp_path)
    (tmp_path / "text.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.json"):
        text_of_run(tmp_path)


def test_only_a_codec_can_be_saved(tmp_path):
    with pytest.raises(TypeError, match="only a Tokenizer can be saved with a model, not a str"):
        save_text("abc", tmp_path)
