import pytest
import torch

from unspool.lab.claims.attention import (
    attention_lengths,
    attention_losses,
    entropy_and_distance,
    gradient_ratio,
    gradient_to_source,
    jacobian_norm,
    key_elimination,
    loss_shaping,
    softmax_saturation,
)
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig


def test_of_one_word_the_first_is_the_last():
    model = RNNSeq2SeqConfig(
        vocab_size=9, width=4, bidirectional=False, context_kind="last", bos=1, eos=2
    ).build()
    assert gradient_ratio(model, 1, 3) == 1.0


def test_every_part_of_gradient_to_source_can_fail(every_part_can_fail):
    good = {"fixed": [0.5, 0.2, 0.1, 1e-5], "attention": [1.0, 1.0, 1.0, 0.3]}
    changes = [{"fixed": [0.1]}, {"attention": [1.0, 1.0, 1.0, 1e-5]}, {"attention": [1.0, 1.0, 9.0, 0.3]}]
    every_part_can_fail(gradient_to_source, good, changes)


def test_every_part_of_attention_lengths_can_fail(every_part_can_fail):
    good = {"attention": [1.0, 0.95], "fixed": [0.9, 0.1]}
    changes = [{"attention": [1.0, 0.8]}, {"fixed": [0.3, 0.2]}, {"fixed": [1.0, 0.49]}]
    every_part_can_fail(attention_lengths, good, changes)


def test_the_norm_of_the_jacobian_by_hand():
    # α = (½, ½): diag(α) − ααᵀ = ¼ [[1, −1], [−1, 1]], whose norm is ½.
    assert jacobian_norm(torch.zeros(1, 2)) == pytest.approx(0.5)
    assert jacobian_norm(torch.tensor([[100.0, 0.0]])) == pytest.approx(0.0, abs=1e-9)


def test_it_is_the_norm_that_autograd_finds():
    scores = torch.randn(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda it: it.softmax(-1), scores)
    assert jacobian_norm(scores[None]) == pytest.approx(float(jacobian.norm()))


def test_every_part_of_softmax_saturation_can_fail(every_part_can_fail):
    good = {"variance": [1.0, 1.0, 1.01], "plain": [0.3, 0.2, 0.05], "scaled": [0.2, 0.25, 0.24]}
    changes = [
        {"variance": [1.0, 2.0]},
        {"plain": [0.3, 0.2, 0.19]},
        {"plain": [0.3, 0.01, 0.02]},
        {"scaled": [0.2, 0.2, 0.01]},
    ]
    every_part_can_fail(softmax_saturation, good, changes)


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


def test_every_part_of_attention_losses_can_fail(every_part_can_fail):
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
    every_part_can_fail(attention_losses, good, changes)


def test_every_part_of_loss_shaping_can_fail(every_part_can_fail):
    good = {
        **{f"plenty of sentences, {kind}": [0.1, 0.11, 0.2] for kind in ("focus", "near")},
        **{f"few sentences, {kind}": [0.9, 0.8, 0.95] for kind in ("focus", "near")},
    }
    changes = [
        {"plenty of sentences, near": [0.1, 0.05, 0.2]},
        {f"few sentences, {kind}": [0.9, 0.89, 0.95] for kind in ("focus", "near")},
    ]
    every_part_can_fail(loss_shaping, good, changes)
