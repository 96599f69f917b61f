from types import SimpleNamespace

import pytest

from unspool.cli.texts import given_texts


def test_what_is_asked_for_suits_the_model(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b'{"source": "ein", "target": "one", "text": "x"}\n' * 3)
    asked = SimpleNamespace(model="m", text=path, limit=2, columns=None, document=None)
    assert given_texts(SimpleNamespace(tokenizer=object(), is_encoder_decoder=True), asked) == (
        ["ein"] * 2,
        ["one"] * 2,
    )
    assert given_texts(SimpleNamespace(tokenizer=object(), is_encoder_decoder=False), asked) == (
        None,
        ["x"] * 2,
    )
    with pytest.raises(ValueError, match="m does not have a tokenizer"):
        given_texts(SimpleNamespace(tokenizer=None, is_encoder_decoder=False), asked)
