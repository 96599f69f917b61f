import pytest
import torch

from unspool.lab.claims.attention import (
    entropy_and_distance,
    gradient_ratio,
    jacobian_norm,
    key_elimination,
)
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.models.rnn_models import RNNSeq2SeqConfig


def test_of_one_word_the_first_is_the_last():
    model = RNNSeq2SeqConfig(
        vocab_size=9, width=4, bidirectional=False, context_kind="last", bos=1, eos=2
    ).build()
    assert gradient_ratio(model, 1, 3) == 1.0


def test_the_norm_of_the_jacobian_by_hand():
    # α = (½, ½): diag(α) − ααᵀ = ¼ [[1, −1], [−1, 1]], whose norm is ½.
    assert jacobian_norm(torch.zeros(1, 2)) == pytest.approx(0.5)
    assert jacobian_norm(torch.tensor([[100.0, 0.0]])) == pytest.approx(0.0, abs=1e-9)


def test_it_is_the_norm_that_autograd_finds():
    scores = torch.randn(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda it: it.softmax(-1), scores)
    assert jacobian_norm(scores[None]) == pytest.approx(float(jacobian.norm()))


def test_every_part_of_key_elimination_can_fail(every_part_can_fail):
    good = {
        "largest change of an attention weight": 1e-6,
        "largest change of log p": 1e-6,
        "largest change of log p, back at rank I": 1e-6,
        "mean change of log p, back at rank I / 2": 0.1,
        "parameters of a head, I = J/2: queries and keys": 1024.0,
        "parameters of a head: W̃": 1024.0,
    }
    changes = [
        {"largest change of an attention weight": 1e-3},
        {"largest change of log p": 1e-3},
        {"mean change of log p, back at rank I / 2": 1e-6},
        {"parameters of a head: W̃": 512.0},
    ]
    every_part_can_fail(key_elimination, good, changes)


def test_one_word_looks_at_itself():
    model = train_model(language("agreement", 1, 20), TRANSFORMER_LM, 1, 1)
    assert entropy_and_distance(model, [(1,)]) == (0.0, 0.0)
    spread, far = entropy_and_distance(model, [(1, 5, 6, 7, 8, 9)])
    assert spread > 0
    assert far > 0
