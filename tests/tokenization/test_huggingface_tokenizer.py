from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from unspool.tokenization import Tokenizer, tokenizer_from_folder


def backend() -> tokenizers.Tokenizer:
    names = ["<s>", "</s>", "<|im_end|>", "Ġ", "a", "b", "ab"]
    built = tokenizers.Tokenizer(models.BPE({name: at for at, name in enumerate(names)}, [("a", "b")]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<s>", "<|im_end|>"])
    return built


def folder(path: Path, built: tokenizers.Tokenizer | None = None, **files: Any) -> Path:
    (built or backend()).save(str(path / "tokenizer.json"))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def load(path: Path, built: tokenizers.Tokenizer | None = None, **files: Any) -> Tokenizer:
    tokenizer = tokenizer_from_folder(folder(path, built, **files))
    assert tokenizer is not None
    return tokenizer


def test_a_folder_without_tokenizer_json_gives_none(tmp_path: Path) -> None:
    assert tokenizer_from_folder(tmp_path) is None
    assert tokenizer_from_folder(tmp_path / "nowhere") is None


def test_tokenizer_json_alone_is_enough(tmp_path: Path) -> None:
    tokenizer = load(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos, tokenizer.chat_template) == (
        None,
        frozenset(),
        False,
        None,
    )
    assert tokenizer.encode("ab b") == [6, 3, 5]


def test_special_tokens_may_be_strings_or_objects(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "add_bos_token": True}
    tokenizer = load(tmp_path, tokenizer_config=config)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (0, frozenset({1}), True)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert tokenizer.encode("ab") == [0, 6]


def test_eos_is_special_even_if_the_tokenizer_does_not_mark_it(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, tokenizer_config={"eos_token": "</s>"})
    assert tokenizer.encode("a</s>") == [4, 1]
    assert tokenizer.decode([4, 1]) == "a"
    assert tokenizer.vocab_size == 7


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({"config": {"eos_token_id": 1}}, {1}),
        ({"config": {"eos_token_id": 1}, "generation_config": {"eos_token_id": [1, 2]}}, {1, 2}),
        ({"config": {"eos_token_id": 1}, "generation_config": {"eos_token_id": 2}}, {2}),
        ({"config": {"eos_token_id": 1}, "generation_config": {"eos_token_id": None}}, {1}),
        ({"generation_config": {"eos_token_id": 1}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, {1, 2}),
        ({"tokenizer_config": {"eos_token": "<nowhere>"}}, set()),
    ],
)
def test_eos_ids_of_all_files(tmp_path: Path, files: Any, ends: set[int]) -> None:
    assert load(tmp_path, **files).eos_ids == ends


def test_post_processor_decides_add_bos(tmp_path: Path) -> None:
    built = backend()
    built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = load(tmp_path, built, tokenizer_config={"bos_token": "<s>"})
    assert tokenizer.add_bos
    assert tokenizer.encode("ab") == [0, 6]
    silent = load(tmp_path, built, tokenizer_config={"bos_token": "<s>", "add_bos_token": False})
    assert silent.encode("ab") == [6]


def test_bos_id_falls_back_to_config(tmp_path: Path) -> None:
    assert load(tmp_path, config={"bos_token_id": 0}).bos_id == 0
    assert load(tmp_path, config={"bos_token_id": 99}).bos_id is None
    assert load(tmp_path, config={"bos_token_id": -1}).bos_id is None


def test_chat_template_sources(tmp_path: Path) -> None:
    assert load(tmp_path, tokenizer_config={"chat_template": "one"}).chat_template == "one"
    named = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    assert load(tmp_path, tokenizer_config={"chat_template": named}).chat_template == "three"
    assert load(tmp_path, tokenizer_config={"chat_template": named[:1]}).chat_template == "two"
    assert load(tmp_path, tokenizer_config={"chat_template": []}).chat_template is None
    (tmp_path / "chat_template.jinja").write_text("é", encoding="utf-8")
    assert load(tmp_path, tokenizer_config={"chat_template": "one"}).chat_template == "é"


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_config", "config", "generation_config"])
@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_broken_file_is_named_in_the_error(tmp_path: Path, name: str, content: str) -> None:
    folder(tmp_path)
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(ValueError, match=rf"{name}\.json"):
        tokenizer_from_folder(tmp_path)


def test_bos_id_overflow_in_config_is_ignored(tmp_path: Path) -> None:
    for number in (-1, 7, 2**32, 2**63):
        assert load(tmp_path, config={"bos_token_id": number}).bos_id is None
