from random import Random

from unspool.data.known_languages import Agreement
from unspool.lab.claims.training import (
    LANGUAGE,
    MODELS,
    forcing_differences,
    possible,
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


def test_the_reward_is_the_truth():
    truth = Agreement(**LANGUAGE)
    said = truth.spell(truth.sample(Random(1)))
    assert possible(said, "") == 1.0
    assert possible(f"{said} {said}", "") == 0.0
