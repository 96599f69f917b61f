import pytest

from unspool.evaluate.rating.answers import PREFERENCE, SCALES, SCORE


def test_only_choices_of_the_scale_are_accepted():
    assert [SCORE.check(it) for it in ("0", "1", "2")] == ["0", "1", "2"]
    assert PREFERENCE.check("=") == "="
    for wrong in ("3", "", "a", 2, None, ["1"]):
        with pytest.raises(ValueError, match=r"is not an answer to .* choose one of 0 \(neither"):
            SCORE.check(wrong)


def test_each_scale_describes_its_choices():
    for name, scale in SCALES.items():
        assert scale.name == name
        assert scale.guide
        assert all(scale.choices.values())
