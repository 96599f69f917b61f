import pytest

from unspool.config import build
from unspool.training.settings import TrainSettings


def test_defaults_stand():
    settings = build(TrainSettings, {"updates": 10}, "train")
    assert settings.accumulate == 1
    assert settings.final == "best"


@pytest.mark.parametrize(
    "wrong",
    [
        {"updates": 0},
        {"accumulate": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"clip": -1.0},
        {"betas": (0.9,)},
        {"betas": (0.9, 1.0)},
        {"patience": 0},
        {"threads": 0},
        {"checkpoint_seconds": 0.0},
        {"keep": 0},
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"train.{name}"):
        TrainSettings(**{"updates": 1, **wrong})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"updats": 1}, "did you mean 'updates'"),
        ({"updates": "many"}, "train.updates"),
        ({"updates": 1, "final": "first"}, "first"),
        ({}, "updates"),
    ],
)
def test_what_is_no_setting_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        build(TrainSettings, wrong, "train")
