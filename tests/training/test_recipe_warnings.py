import pytest

from unspool.training.optim import Constant, Cosine, InverseSqrt
from unspool.training.recipe_checks import recipe_warnings
from unspool.training.settings import TrainSettings


def test_a_sound_plan_is_not_commented():
    train = TrainSettings(updates=400, checkpoint_every=100, final="average", average=4, patience=1)
    assert recipe_warnings(train, InverseSqrt(400), validates=True) == []
    assert recipe_warnings(TrainSettings(updates=1), Constant(), validates=False) == []


@pytest.mark.parametrize(
    ("schedule", "share"), [(InverseSqrt(400), "50 %"), (Cosine(800), "25 %"), (Constant(201), "100 %")]
)
def test_a_warm_up_that_never_ends_is_said(schedule, share):
    (said,) = recipe_warnings(TrainSettings(updates=200), schedule, validates=True)
    assert said.startswith(f"schedule.warmup={schedule.warmup} is longer than the run of 200 updates")
    assert said.endswith(f"ends at {share} of it".replace(" %", "%"))


def test_a_mean_of_more_checkpoints_than_there_are_is_said():
    train = TrainSettings(updates=1200, checkpoint_every=500, final="average")
    (said,) = recipe_warnings(train, Constant(), validates=True)
    assert "train.average=5" in said
    assert "the run of 1200 updates has 3 checkpoints: the mean is of these" in said
    assert (
        recipe_warnings(TrainSettings(updates=1200, checkpoint_every=500), Constant(), validates=True) == []
    )


def test_patience_without_validation_is_said():
    (said,) = recipe_warnings(TrainSettings(updates=5, patience=2), Constant(), validates=False)
    assert "train.patience has nothing to go by" in said


def test_a_number_of_checkpoints_that_nobody_takes_the_mean_of_is_said():
    (said,) = recipe_warnings(TrainSettings(updates=5, average=3), Constant(), validates=True)
    assert said == (
        'train.average=3 changes nothing while train.final = "best": set train.final = "average" as well'
    )


def test_the_best_likelihood_is_not_what_a_reward_looks_for():
    best = TrainSettings(updates=5)
    (said,) = recipe_warnings(best, Constant(), validates=True, rewarded=True)
    assert said.startswith('an objective follows a reward, and train.final = "best" takes')
    assert 'set train.measure to "bleu" or "chrf"' in said
    assert recipe_warnings(best, Constant(), validates=False, rewarded=True) == []
    for other in ({"final": "last"}, {"measure": "chrf"}):
        assert recipe_warnings(TrainSettings(updates=5, **other), Constant(), True, rewarded=True) == []
