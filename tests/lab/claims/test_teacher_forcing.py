from random import Random

from unspool.lab.claims.teacher_forcing import CLAIM, MODELS, apart
from unspool.lab.small_models import task, train_model


def test_a_model_that_reads_the_future_is_noticed():
    model = train_model(task("copy", 1, 50), MODELS["Transformer encoder–decoder"], 1, 1)
    difference, past = apart(model, Random(1), 8)
    assert difference < 1e-4
    assert past < 1e-6
    for block in model.blocks:
        block.attention.causal = False
    difference, past = apart(model, Random(1), 8)
    assert past > 1e-6


def test_every_part_can_fail(every_part_can_fail):
    good = {f"{name}: largest difference of log p": 1e-6 for name in MODELS}
    good |= {f"{name}: a changed last word changes earlier log p by": 0.0 for name in MODELS}
    changes = [
        {"Transformer: largest difference of log p": 1e-3},
        {"recurrent: a changed last word changes earlier log p by": 1e-3},
    ]
    every_part_can_fail(CLAIM, good, changes)
