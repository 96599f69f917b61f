from random import Random

from unspool.data.known_languages import Agreement
from unspool.lab.claims.training import (
    LANGUAGE,
    MODELS,
    exposure_bias,
    exposure_remedies,
    forcing_differences,
    possible,
    remedies,
    right_to_left,
    teacher_forcing,
)
from unspool.lab.small_models import task, train_model


def test_a_model_that_reads_the_future_is_noticed():
    model = train_model(task("copy", 1, 50), MODELS["Transformer encoder–decoder"], 1, 1)
    difference, past = forcing_differences(model, Random(1), 8)
    assert difference < 1e-4
    assert past < 1e-6
    for block in model.blocks:
        block.attention.causal = False
    difference, past = forcing_differences(model, Random(1), 8)
    assert past > 1e-6


def test_every_part_of_teacher_forcing_can_fail(every_part_can_fail):
    good = {f"{name}: largest difference of log p": 1e-6 for name in MODELS}
    good |= {f"{name}: a changed last word changes earlier log p by": 0.0 for name in MODELS}
    changes = [
        {"Transformer: largest difference of log p": 1e-3},
        {"recurrent: a changed last word changes earlier log p by": 1e-3},
    ]
    every_part_can_fail(teacher_forcing, good, changes)


def test_every_part_of_right_to_left_can_fail(every_part_can_fail):
    good = {"left to right": [0.1, 0.5], "right to left": [0.2, 0.9]}
    every_part_can_fail(right_to_left, good, [{"right to left": [0.2, 0.55]}, {"left to right": [0.3, 0.5]}])


def test_every_part_of_exposure_bias_can_fail(every_part_can_fail):
    good = {"gap after 2 words": 0.01, "gap after 8 words": 0.1}
    every_part_can_fail(exposure_bias, good, [{"gap after 8 words": -0.1}, {"gap after 2 words": 0.2}])


def test_the_reward_is_the_truth():
    truth = Agreement(**LANGUAGE)
    said = truth.spell(truth.sample(Random(1)))
    assert possible(said, "") == 1.0
    assert possible(f"{said} {said}", "") == 0.0


def test_every_part_of_exposure_remedies_can_fail(every_part_can_fail):
    names = list(remedies(1))
    good = {f"{name}: possible sentences": 0.6 for name in names}
    good["maximum likelihood: possible sentences"] = 0.5
    every_part_can_fail(exposure_remedies, good, [{f"{name}: possible sentences": 0.5} for name in names[1:]])
