import pytest
from pydantic import ValidationError

from unspool.serve.page.routes import AttentionQuestion, BeamTreeQuestion, NextTokenQuestion

SHORT = {"model": "bible", "prompt": "x"}


def test_what_is_left_out_has_a_value():
    assert NextTokenQuestion(**SHORT).count == 40
    assert BeamTreeQuestion(**SHORT).decoder == "Beam(4)"
    assert AttentionQuestion(**SHORT).kind is None


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (NextTokenQuestion, {"prompt": ""}),
        (NextTokenQuestion, {"prompt": []}),
        (NextTokenQuestion, {"prompt": "x" * 20_001}),
        (NextTokenQuestion, {"prompt": [1] * 4097}),
        (NextTokenQuestion, {"tokens": [1] * 129}),
        (NextTokenQuestion, {"tokens": [-1]}),
        (NextTokenQuestion, {"decoders": ["Greedy()"] * 9}),
        (NextTokenQuestion, {"decoders": ["G" * 1001]}),
        (NextTokenQuestion, {"count": 101}),
        (NextTokenQuestion, {"colour": "red"}),
        (BeamTreeQuestion, {"max_tokens": 65}),
        (AttentionQuestion, {"kind": "sideways"}),
        (AttentionQuestion, {"layer": -1}),
    ],
)
def test_what_is_too_much_or_unknown_is_refused(kind, fields):
    with pytest.raises(ValidationError):
        kind(**{**SHORT, **fields})
