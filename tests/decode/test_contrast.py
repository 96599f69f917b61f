import itertools
import math

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.decode.combine import Contrast, plausible
from unspool.decode.generate import generate, stream
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.beam import Beam
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableModel, random_table

INF = float("inf")


def fixed(*p):
    return TableModel(lambda row: p)


def tiny(seed, layers=2, vocab_size=17):
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=vocab_size,
        width=16,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_width=4,
        inner_width=24,
        context=48,
    )
    model = TransformerLM(config).eval()
    with torch.no_grad():
        model.embed.weight.mul_(3)  # far from uniform, so that a wrong cache would show
    return model


STRONG, WEAK = tiny(0, layers=3), tiny(1)
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9], [1, 2]]


def said(model, prompt=(0,)):
    step, _ = model.start([list(prompt)])
    return step


def scores(strong, weak, **options):
    return said(Contrast(fixed(*strong), fixed(*weak), **options)).score_NV[0].tolist()


def test_two_tiny_probabilities_win_unless_they_are_implausible():
    strong, weak = (0.9, 0.0999, 1e-4), (0.8, 0.2 - 1e-8, 1e-8)
    open_to_all = scores(strong, weak, alpha=0.0)
    assert open_to_all[2] == pytest.approx(9.2103, abs=1e-3)  # log 1e-4 / 1e-8
    assert max(open_to_all) == open_to_all[2]
    assert scores(strong, weak, alpha=0.1) == [
        pytest.approx(0.117783, abs=1e-5),  # log 0.9 / 0.8
        pytest.approx(-0.694148, abs=1e-5),  # log 0.0999 / 0.2, and 0.0999 ≥ 0.1 · 0.9
        -INF,
    ]


def test_by_hand():
    # log 0.5/0.7, log 0.3/0.1, log 0.15/0.1, and 0.05 < 0.2 · 0.5
    strong, weak = (0.5, 0.3, 0.15, 0.05), (0.7, 0.1, 0.1, 0.1)
    want = [-0.3364722, 1.0986123, 0.4054651, -INF]
    assert scores(strong, weak, alpha=0.2) == pytest.approx(want, abs=1e-6)
    step = said(Contrast(fixed(*strong), fixed(*weak), alpha=0.2))
    # 0.714286, 3, 1.5 over their sum
    p = [0.1369863, 0.5753425, 0.2876712, 0.0]
    assert step.logp_NV[0].exp().tolist() == pytest.approx(p, abs=1e-6)


def test_the_weak_models_weight_and_temperature():
    strong, weak = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)
    assert scores(strong, weak, weight=0.5)[0] == pytest.approx(math.log(0.5) - 0.5 * math.log(0.6))
    # τ = ½ squares the weak model: (0.36, 0.09, 0.01) / 0.46
    assert scores(strong, weak, temperature=0.5) == pytest.approx(
        [math.log(0.5 / (0.36 / 0.46)), math.log(0.3 / (0.09 / 0.46)), math.log(0.2 / (0.01 / 0.46))],
        abs=1e-5,
    )


def test_the_form_of_obrien_and_lewis():
    strong, weak = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)
    model = Contrast.obrien_lewis(fixed(*strong), fixed(*weak), beta=0.5)
    want = [1.5 * math.log(s) - 0.5 * math.log(w) for s, w in zip(strong, weak, strict=True)]
    assert said(model).score_NV[0].tolist() == pytest.approx(want, abs=1e-6)
    assert model == Contrast(model.strong, model.weak, 0.1, weight=0.5, strong_weight=1.5)
    assert "weight=0.5, temperature=1.0, strong_weight=1.5" in repr(model)
    alone = Contrast.obrien_lewis(fixed(*strong), fixed(*weak), beta=0, alpha=0)
    torch.testing.assert_close(said(alone).logp_NV, said(alone.strong).logp_NV)


def test_alpha_one_is_the_strong_models_greedy():
    strong, weak = random_table(9, seed=1), random_table(9, seed=2)
    alone = generate(strong, [1], Greedy(), max_new_tokens=20)
    out = generate(Contrast(strong, weak, alpha=1.0), [1], Greedy(), max_new_tokens=20)
    assert out.tokens == alone.tokens
    assert out.logps == pytest.approx([0.0] * 20)
    assert generate(Contrast(strong, weak), [1], Greedy(), max_new_tokens=20).tokens != alone.tokens


def test_a_uniform_weak_model_leaves_the_strong_ones_order():
    strong = random_table(9, seed=1)
    model = Contrast(strong, fixed(*[1 / 9] * 9), alpha=0.0)
    torch.testing.assert_close(said(model).logp_NV, said(strong).logp_NV)


def test_tokens_that_a_model_rules_out():
    assert scores((0.5, 0.5, 0.0), (0.5, 0.5, 0.0), alpha=0.0) == [0.0, 0.0, -INF]
    ruled_out = said(Contrast(fixed(0.5, 0.5), fixed(1.0, 0.0), alpha=0.0))
    assert ruled_out.score_NV[0, 1] == pytest.approx(1e4, rel=1e-3)
    assert ruled_out.logp_NV[0].tolist() == [pytest.approx(-1e4, rel=1e-3), 0.0]


rows = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda row: sum(row) > 1e-3)


@given(rows, rows, st.floats(0, 1), st.floats(0, 3), st.floats(0.1, 3))
def test_what_comes_out_is_a_distribution_over_the_plausible_tokens(strong, weak, alpha, weight, temperature):
    strong, weak = ([x / sum(row) for x in row] for row in (strong, weak))
    step = said(Contrast(fixed(*strong), fixed(*weak), alpha, weight, temperature))
    p = step.logp_NV[0].exp()
    assert p.sum().item() == pytest.approx(1.0, abs=1e-5)
    keep = plausible(torch.tensor([strong]).log(), alpha)[0] & (torch.tensor(strong) > 0)
    assert ((step.score_NV[0] > -INF) == keep).all()


def test_inputs_are_left_alone_and_the_hidden_vectors_are_the_strong_models():
    strong, weak = STRONG.start([[1, 2]])[0], WEAK.start([[1, 2]])[0]
    kept = strong.logp_NV.clone(), weak.logp_NV.clone()
    joined = Contrast(STRONG, WEAK).join([strong, weak])
    torch.testing.assert_close((strong.logp_NV, weak.logp_NV), kept, atol=0, rtol=0)
    assert joined.hidden_ND is strong.hidden_ND


def uncached_score(row, alpha=0.1):
    """The contrast's score after a row, from two parallel passes over the whole of it."""
    with torch.no_grad():
        strong, weak = (model(torch.tensor([row]))[0, -1] for model in (STRONG, WEAK))
    keep = strong.exp() >= alpha * strong.exp().max()
    return (strong - weak).masked_fill(~keep, -INF)


def uncached_logp(row):
    return uncached_score(row).log_softmax(-1)


def test_greedy_and_sampled_texts_of_two_caches_are_those_without_any():
    model = Contrast(STRONG, WEAK)
    for decoder, n in ((Greedy(), 1), (Sample(), 3)):
        outs = generate(model, PROMPTS, decoder, max_new_tokens=12, n=n, seed=4)
        for prompt, group in zip(PROMPTS, outs, strict=True):
            for out in group if n > 1 else [group]:
                row = list(prompt)
                for token, logp in zip(out.tokens, out.logps, strict=True):
                    want = uncached_logp(row)
                    assert logp == pytest.approx(want[token].item(), abs=1e-4)
                    if n == 1:
                        assert token == want.argmax().item()
                    row.append(token)


def test_the_same_seed_gives_the_same_text_in_any_company():
    model = Contrast(STRONG, WEAK)
    together = generate(model, PROMPTS, Sample(), max_new_tokens=10, n=2, seed=3)
    for prompt, group in zip(PROMPTS, together, strict=True):
        alone = generate(model, prompt, Sample(), max_new_tokens=10, n=2, seed=3)
        assert [out.tokens for out in alone] == [out.tokens for out in group]
    streamed = stream(model, PROMPTS[0], Sample(), max_new_tokens=10, seed=3)
    assert sum((piece.tokens for piece in streamed), ()) == together[0][0].tokens


def test_a_beam_adds_up_the_papers_score_and_not_log_p():
    strong, weak = random_table(3, seed=4), random_table(3, seed=5)
    model = Contrast(strong, weak, alpha=0.3)

    def total(tokens):
        rows = [(0, *tokens[:t]) for t in range(len(tokens))]
        return sum(
            said(model, row).score_NV[0, token].item() for row, token in zip(rows, tokens, strict=True)
        )

    best = max(itertools.product(range(3), repeat=4), key=total)
    out = generate(model, [0], Beam(81), max_new_tokens=4)
    assert out.tokens == best
    assert out.total == pytest.approx(total(best), abs=1e-4)
    assert out.total > 0  # no sum of log-probabilities is


def test_a_beam_over_two_caches_is_right_in_any_company():
    model = Contrast(STRONG, WEAK, alpha=1e-3)
    together = generate(model, PROMPTS, Beam(4), max_new_tokens=8, n=2)
    for prompt, group in zip(PROMPTS, together, strict=True):
        alone = generate(model, prompt, Beam(4), max_new_tokens=8, n=2)
        assert [out.tokens for out in alone] == [out.tokens for out in group]
        for out in group:
            rows = [[*prompt, *out.tokens[:t]] for t in range(8)]
            want = sum(
                uncached_score(row, 1e-3)[token].item() for row, token in zip(rows, out.tokens, strict=True)
            )
            assert out.total == pytest.approx(want, abs=1e-3)


def test_it_reads_ahead_and_goes_back():
    model = Contrast(STRONG, WEAK)
    assert model.rewindable is model
    _, state = model.start([[1, 2, 3]])
    _, state = model.extend(state, torch.tensor([[9, 9, 9]]))
    step, _ = model.extend(model.rewind(state, 3), torch.tensor([[4, 5]]))
    for t, row in enumerate(([1, 2, 3, 4], [1, 2, 3, 4, 5])):
        torch.testing.assert_close(step.logp_NV[t], uncached_logp(row), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -0.1},
        {"alpha": 1.1},
        {"alpha": float("nan")},
        {"weight": -1},
        {"temperature": 0},
        {"strong_weight": 0},
    ],
)
def test_values_out_of_range_are_refused_by_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Contrast(fixed(0.5, 0.5), fixed(0.5, 0.5), **options)


def test_a_negative_beta_is_refused():
    with pytest.raises(ValueError, match="beta"):
        Contrast.obrien_lewis(fixed(0.5, 0.5), fixed(0.5, 0.5), beta=-0.5)


def test_other_vocabularies_are_refused():
    with pytest.raises(ValueError, match="2 tokens and model 1 has 3"):
        Contrast(fixed(0.5, 0.5), fixed(0.5, 0.2, 0.3))
