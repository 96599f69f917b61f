from unspool.lab.claims.attention_losses import CLAIM, looks
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model


def test_one_word_looks_at_itself():
    model = train_model(language("agreement", 1, 20), TRANSFORMER_LM, 1, 1)
    assert looks(model, [(1,)]) == (0.0, 0.0)
    spread, far = looks(model, [(1, 5, 6, 7, 8, 9)])
    assert spread > 0
    assert far > 0


def test_every_part_can_fail(every_part_can_fail):
    good = {
        **{"plain: entropy": 2.0, "focus: entropy": 0.5},
        **{"plain: squared distance": 9.0, "near: squared distance": 2.0},
        "entropy of a uniform row, T = 64, less ln T": 0.0,
        "largest capped distance of uniform rows, T = 8 to 512": 64.0,
    }
    changes = [
        {"focus: entropy": 1.5},
        {"near: squared distance": 8.0},
        {"largest capped distance of uniform rows, T = 8 to 512": 65.0},
    ]
    every_part_can_fail(CLAIM, good, changes)
