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
        {"updates": -1},
        {"updates": 0},
        {"epochs": 0.0},
        {"epochs": float("inf")},
        {"lr": float("inf")},
        {"eps": float("inf")},
        {"clip": float("inf")},
        {"clip": float("nan")},
        {"weight_decay": float("inf")},
        {"accumulate": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"clip": -1.0},
        {"betas": (0.9,)},
        {"betas": (0.9, 1.0)},
        {"patience": 0},
        {"threads": 0},
        {"keep": 0},
    ],
)
def test_invalid_settings_are_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"train.{name}"):
        build(TrainSettings, {"updates": 0 if "epochs" in wrong else 1, **wrong}, "train")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"updats": 1}, "did you mean 'updates'"),
        ({"updates": "many"}, "train.updates"),
        ({"updates": 1, "final": "first"}, "first"),
        ({}, "updates"),
    ],
)
def test_an_unknown_setting_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        build(TrainSettings, wrong, "train")


def test_a_run_has_updates_or_epochs():
    with pytest.raises(ValueError, match=r"train\.updates=3 and train\.epochs=2.0 are both given"):
        TrainSettings(updates=3, epochs=2.0)
    with pytest.raises(ValueError, match=r"give train.updates or train.epochs"):
        TrainSettings()


@pytest.mark.parametrize(
    ("epochs", "per_epoch", "accumulate", "updates"),
    [(2.0, 30, 1, 60), (0.1, 30, 1, 3), (1.0, 7, 2, 4), (2.5, 3, 1, 8), (0.001, 5, 1, 1), (1 / 3, 3, 1, 1)],
)
def test_epochs_become_updates(epochs, per_epoch, accumulate, updates):
    settings = TrainSettings(epochs=epochs, accumulate=accumulate, lr=0.5)
    counted = settings.with_updates(per_epoch)
    assert (counted.updates, counted.epochs, counted.lr) == (updates, None, 0.5)
    assert counted.with_updates(per_epoch) is counted
