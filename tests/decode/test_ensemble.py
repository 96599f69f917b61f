import math

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.combine import MEANS, Ensemble
from unspool.decode.generate import generate
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.beam import Beam
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableModel, random_table

PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]


def fixed(*p):
    return TableModel(lambda row: p)


def p_of(model):
    return model.start([[0]])[0].logp_NV[0].exp().tolist()


def tiny(seed):
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=17,
        width=16,
        layers=2,
        heads=4,
        kv_heads=2,
        head_width=4,
        inner_width=24,
        context=32,
    )
    return TransformerLM(config).eval()


def test_the_mean_of_probabilities_by_hand():
    models = fixed(0.6, 0.3, 0.1), fixed(0.2, 0.2, 0.6)
    assert p_of(Ensemble(models)) == pytest.approx([0.4, 0.25, 0.35])
    # (3 · first + 1 · second) / 4
    assert p_of(Ensemble(models, weights=(3, 1))) == pytest.approx([0.5, 0.275, 0.225])


def test_the_mean_of_log_probabilities_by_hand():
    models = fixed(0.8, 0.1, 0.1), fixed(0.2, 0.4, 0.4)
    # √0.16, √0.04, √0.04 = 0.4, 0.2, 0.2 over 0.8
    assert p_of(Ensemble(models, mean="log_probability")) == pytest.approx([0.5, 0.25, 0.25])


def test_a_token_that_one_model_rules_out():
    models = fixed(0.5, 0.5, 0.0), fixed(0.0, 0.5, 0.5)
    assert p_of(Ensemble(models)) == pytest.approx([0.25, 0.5, 0.25])
    assert p_of(Ensemble(models, mean="log_probability")) == pytest.approx([0.0, 1.0, 0.0])


def test_models_that_agree_on_nothing_are_an_error_and_not_nan():
    with pytest.raises(ValueError, match="every token has probability 0 for some model"):
        p_of(Ensemble((fixed(1.0, 0.0), fixed(0.0, 1.0)), mean="log_probability"))


rows = st.lists(st.floats(1e-6, 1), min_size=4, max_size=4)


@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from(sorted(MEANS)))
def test_equal_models_are_each_of_them_and_every_mean_is_a_distribution(weights, mean):
    models = [fixed(*(x / sum(row) for x in row)) for row in weights]
    p = p_of(Ensemble(models, mean=mean))
    assert sum(p) == pytest.approx(1.0, abs=1e-5)
    same = Ensemble([models[0]] * 3, weights=[0.2, 5, 1], mean=mean)
    assert p_of(same) == pytest.approx(p_of(models[0]), abs=1e-5)


@pytest.mark.parametrize("mean", sorted(MEANS))
def test_searches_on_caches_give_what_whole_passes_give(mean):
    parts = [tiny(0), tiny(1), tiny(2)]
    model = Ensemble(parts, mean=mean)
    for decoder, n in ((Greedy(), 1), (Sample(), 2), (Beam(4), 2)):
        outs = generate(model, PROMPTS, decoder, max_new_tokens=8, n=n, seed=1)
        for prompt, group in zip(PROMPTS, outs, strict=True):
            for out in group if n > 1 else [group]:
                tokens = torch.tensor([[*prompt, *out.tokens]])
                with torch.no_grad():
                    said = torch.stack([part(tokens)[0] for part in parts])
                said = said.logsumexp(0) - math.log(3) if mean == "probability" else said.mean(0)
                want = said.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, tokens[0, len(prompt) :, None])
                assert out.logps == pytest.approx(want.squeeze(1).tolist(), abs=1e-4)


def test_it_is_rewindable_as_its_models_are():
    model = Ensemble((random_table(5, seed=1), random_table(5, seed=2)))
    assert model.rewindable is model
    _, state = model.start([[1]])
    ahead, state = model.extend(state, torch.tensor([[2, 3]]))
    step, _ = model.step(model.rewind(state, 1), torch.tensor([3]))
    torch.testing.assert_close(step.logp_NV, ahead.logp_NV[1:])


def test_equality_and_repr():
    a, b = random_table(5, seed=1), random_table(5, seed=2)
    assert Ensemble([a, b], [1, 2]) == Ensemble((a, b), (1, 2)) != Ensemble((a, b))
    assert repr(Ensemble([a], mean="log_probability")).endswith("weights=None, mean='log_probability')")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ()}, "at least one"),
        ({"weights": (1.0,)}, "1 weights for 2 models"),
        ({"weights": (1.0, 0.0)}, r"weights\[1\]"),
        ({"weights": (1.0, math.inf)}, r"weights\[1\]"),
        ({"mean": "median"}, "must be one of 'log_probability', 'probability'"),
    ],
)
def test_what_cannot_be_averaged_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Ensemble(**{"models": (fixed(0.5, 0.5), fixed(0.1, 0.9)), **options})
