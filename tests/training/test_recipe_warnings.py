import pytest

from unspool.training.optim import Constant, Cosine, InverseSqrt
from unspool.training.recipe_checks import recipe_warnings
from unspool.training.settings import TrainSettings


def test_usual_settings_give_no_warning():
    train = TrainSettings(updates=400, checkpoint_every=100, final="average", average=4, patience=1)
    assert recipe_warnings(train, InverseSqrt(400), validates=True) == []
    assert recipe_warnings(TrainSettings(updates=1), Constant(), validates=False) == []


@pytest.mark.parametrize(
    ("schedule", "share"), [(InverseSqrt(400), "50 %"), (Cosine(800), "25 %"), (Constant(201), "100 %")]
)
def test_a_warmup_longer_than_the_run_is_reported(schedule, share):
    (said,) = recipe_warnings(TrainSettings(updates=200), schedule, validates=True)
    assert said.startswith(f"schedule.warmup={schedule.warmup} is longer than the run of 200 updates")
    assert said.endswith(f"ends at {share} of train.lr".replace(" %", "%"))


def test_averaging_more_checkpoints_than_there_are_is_reported():
    train = TrainSettings(updates=1200, checkpoint_every=500, final="average")
    (said,) = recipe_warnings(train, Constant(), validates=True)
    assert said == "train.average=5, but the run has only 3 checkpoints"
    assert (
        recipe_warnings(TrainSettings(updates=1200, checkpoint_every=500), Constant(), validates=True) == []
    )


def test_patience_without_validation_is_reported():
    (said,) = recipe_warnings(TrainSettings(updates=5, patience=2), Constant(), validates=False)
    assert "train.patience has no effect" in said


def test_an_unused_average_is_reported():
    (said,) = recipe_warnings(TrainSettings(updates=5, average=3), Constant(), validates=True)
    assert said == ('train.average=3 has no effect: set train.final = "average" as well')


def test_choosing_by_likelihood_with_a_reward_is_reported():
    best = TrainSettings(updates=5)
    (said,) = recipe_warnings(best, Constant(), validates=True, rewarded=True)
    assert said.startswith('train.final = "best" keeps the weights with the best likelihood')
    assert 'set train.measure to "bleu" or "chrf"' in said
    assert recipe_warnings(best, Constant(), validates=False, rewarded=True) == []
    for other in ({"final": "last"}, {"measure": "chrf"}):
        assert recipe_warnings(TrainSettings(updates=5, **other), Constant(), True, rewarded=True) == []
