from __future__ import annotations

import dataclasses

import pytest

from unspool.config import choose, to_kind_dict
from unspool.data.line_formats import TSV, Lines
from unspool.data.preparation import DATA
from unspool.data.rows import OwnTokenizer
from unspool.tokenization import Tokenizer, train_words


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_is_a_frozen_dataclass_that_can_be_asked_for_rows(kind: str) -> None:
    cls = DATA[kind]
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    for name in ("files", "train_rows", "valid_rows", "form", "held", "holds_out"):
        assert hasattr(cls, name), name


def test_a_recipe_names_its_kind_and_comes_back() -> None:
    data = TSV(train="deu.txt", source=2, target=1, valid_lines=100)
    said = to_kind_dict(DATA, data)
    assert said["kind"] == "tsv"
    assert choose(DATA, said, "data") == data


def test_an_unknown_key_is_said_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"'valid_line' is not a known key of .data.: did you mean 'valid_lines'"
    ):
        choose(DATA, {"kind": "lines", "train": "a", "valid_line": 3}, "data")
    with pytest.raises(ValueError, match="did you mean 'lines'"):
        choose(DATA, {"kind": "line"}, "data")


def test_data_may_bring_its_vocabulary() -> None:
    class Spoken:
        def new_tokenizer(self) -> Tokenizer:
            return train_words(["a b"])

    assert isinstance(Spoken(), OwnTokenizer)
    assert not isinstance(Lines(train="a"), OwnTokenizer)
