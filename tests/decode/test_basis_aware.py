import weakref
from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from unspool.basis import BasisTest, KappaRule, RowLengths
from unspool.basis.solver import whitening
from unspool.basis.work import DEFAULT_BUDGET
from unspool.decode import picks
from unspool.decode.generate import generate
from unspool.decode.lockstep import DelegatingModel
from unspool.decode.picks import BasisAware, ConstantTau, EtaTau, NucleusTau
from unspool.decode.search import Sample
from unspool.decode.transforms import Temperature, TopK, Typical
from unspool.interfaces import Abilities, Step
from unspool.models import config_from_dict
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableModel, random_table


@dataclass(eq=False)
class Linear(Abilities):
    """p = softmax(W h) with the same h at every step."""

    matrix: torch.Tensor
    hidden: torch.Tensor
    context = None
    tokenizer = None

    @property
    def output_matrix(self):
        return self.matrix

    @property
    def table(self):
        p = (self.output_matrix @ self.hidden).softmax(-1)
        return TableModel(lambda row: p.tolist())

    @property
    def vocab_size(self):
        return len(self.output_matrix)

    def start(self, prompts):
        return self.table.start(prompts)

    def step(self, state, tokens_N):
        return self.table.step(state, tokens_N)


EXAMPLE = Linear(torch.tensor([[0.55], [0.71], [0.29]]), torch.tensor([2.55]))
TAU = 1 - 1 / 1.9


def random_model(seed, vocabulary=14, width=3):
    rng = torch.Generator().manual_seed(seed)
    W = torch.randn(vocabulary, width, generator=rng)
    return Linear(W, 1.2 * torch.randn(width, generator=rng))


def test_the_papers_example():
    # p = (.331, .498, .171), δ = log 1.9: token 0 may be a mistake of the bottleneck, 1 and 2 may not
    outs = generate(EXAMPLE, [0], Sample(BasisAware(TAU, rank=None)), n=400, seed=0, max_new_tokens=1)
    drawn = Counter(out.tokens[0] for out in outs)
    assert drawn[0] == 0
    p = torch.softmax(torch.tensor([0.71, 0.29]) * 2.55, 0)
    assert chisquare([drawn[1], drawn[2]], (400 * p.double() / p.double().sum()).tolist()).pvalue > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_it_draws_the_distribution_restricted_to_the_accepted_set(seed):
    model, tau = random_model(seed), 0.3
    p = (model.output_matrix.double() @ model.hidden.double()).softmax(-1)
    test = BasisTest(model.output_matrix)
    accepted = [i for i in range(len(p)) if test.solve_linear_program(p.numpy(), i, tau)]
    assert 1 < len(accepted) < len(p)
    outs = generate(model, [0], Sample(BasisAware(tau, rank=None)), n=700, seed=seed, max_new_tokens=1)
    drawn = Counter(out.tokens[0] for out in outs)
    assert set(drawn) <= set(accepted)
    expected = p[accepted] / p[accepted].sum() * 700
    assert chisquare([drawn[i] for i in accepted], expected.tolist()).pvalue > 1e-3


def test_rank_zero_is_the_plain_threshold():
    model, tau = random_model(1), 0.1
    p = (model.output_matrix @ model.hidden).softmax(-1)
    outs = generate(model, [0], Sample(BasisAware(tau, rank=0)), n=300, seed=0, max_new_tokens=1)
    assert {out.tokens[0] for out in outs} == set((p >= tau).nonzero().flatten().tolist())


def test_batch_mates_change_nothing():
    torch.manual_seed(0)
    model = TransformerLM(
        TransformerConfig(
            vocab_size=40, width=8, layers=1, heads=2, kv_heads=2, head_width=4, inner_width=16, context=64
        )
    ).eval()
    decoder = Sample(BasisAware(0.2, rank=4))
    prompts = [[1, 2], [3], [4, 5, 6]]
    alone = [generate(model, prompt, decoder, seed=5, max_new_tokens=12).tokens for prompt in prompts]
    together = generate(model, prompts, decoder, seed=5, max_new_tokens=12)
    assert [out.tokens for out in together] == alone


def test_statistics_count_tests_draws_and_fallbacks():
    out = generate(random_model(0), [0], Sample(BasisAware(0.3, rank=None)), seed=1, max_new_tokens=60)
    stats = out.stats
    proofs = {name: count for name, count in stats.items() if name.startswith(("accepted: ", "rejected: "))}
    assert stats["tests"] == sum(proofs.values()) > 0
    assert stats["drawn"] >= 60
    assert stats["milliseconds"] > 0
    assert stats["drawn"] - sum(n for name, n in proofs.items() if name.startswith("rejected")) + stats.get(
        "fallbacks", 0
    ) == pytest.approx(60)


def test_when_everything_is_rejected_the_most_probable_token_is_taken():
    flat = Linear(torch.tensor([[0.01], [0.0], [-0.01], [0.005]]), torch.tensor([1.0]))
    outs = generate(flat, [0], Sample(BasisAware(0.9, rank=0)), n=20, seed=0, max_new_tokens=1)
    assert {out.tokens for out in outs} == {(0,)}
    assert all(out.stats["fallbacks"] == 1 for out in outs)
    limited = generate(flat, [0], Sample(BasisAware(0.9, rank=0, retries=2)), seed=0, max_new_tokens=1)
    assert limited.stats["drawn"] == 2


def test_the_fallback_is_a_token_that_the_rules_before_have_left():
    """Typical cuts the most probable token here, and everything else is rejected."""
    model, rule = random_model(0, vocabulary=40, width=6), Typical(0.2)
    logp = (model.output_matrix @ model.hidden).log_softmax(-1)
    kept = rule.keeps(logp[None])[0]
    assert not kept[logp.argmax()]
    out = generate(model, [0], Sample(rule, BasisAware(0.999, rank=3)), seed=1, max_new_tokens=30)
    assert out.stats["fallbacks"] > 0
    assert all(kept[token] for token in out.tokens)
    best = int(logp.masked_fill(~kept, -torch.inf).argmax())
    nothing = Sample(rule, BasisAware(0.999, rank=0))
    assert generate(model, [0], nothing, seed=1, max_new_tokens=3).tokens == (best,) * 3


def test_by_default_it_looks_at_20_directions_or_as_many_as_there_are():
    assert BasisAware().bind(random_model(0, vocabulary=40, width=6), ()).test.rank == 6
    assert BasisAware.eta(0.02).bind(random_model(0, vocabulary=40, width=30), ()).test.rank == 20
    assert BasisAware.nucleus().bind(random_model(0, vocabulary=40, width=1), ()).test.rank == 1
    with pytest.raises(ValueError, match="rank is 20, but the width of Linear is 6"):
        BasisAware(rank=20).bind(random_model(0, vocabulary=40, width=6), ())


def test_processed_is_the_distribution_that_all_rules_before_have_made():
    """Tokens that were cut have no probability there: of two tokens left, neither can be replaced."""
    model = random_model(1)
    p = (model.output_matrix @ model.hidden / 0.5).softmax(-1)
    top = p.topk(2).indices.tolist()
    left = np.zeros(len(p))
    left[top] = p[top].double() / p[top].double().sum()
    expected = {i for i in top if BasisTest(model.output_matrix).accepts(left, i, tau=0.9)}
    rules = (Temperature(0.5), TopK(2), BasisAware(0.9, rank=None, on="processed"))
    outs = generate(model, [0], Sample(*rules), n=100, seed=0, max_new_tokens=1)
    assert {out.tokens[0] for out in outs} == expected == set(top)
    outs = generate(model, [0], Sample(TopK(2), BasisAware(0.9, rank=None)), n=100, seed=0, max_new_tokens=1)
    assert any(out.stats.get("fallbacks") for out in outs)  # of the model's own p̂ they can


def test_thresholds_for_each_row():
    assert BasisAware(0.1).tau == ConstantTau(0.1)
    assert BasisAware.eta(0.02).tau == EtaTau(0.02)
    assert BasisAware.nucleus(0.9).tau == NucleusTau(0.9)
    for pick in (BasisAware.eta(0.02, rank=2), BasisAware.nucleus(0.6, rank=2)):
        assert len(generate(random_model(2), [0], Sample(pick), seed=0, max_new_tokens=5).tokens) == 5


def test_a_model_without_an_output_matrix_is_refused():
    with pytest.raises(ValueError, match="TableModel has none"):
        generate(random_table(5, 0), [0], Sample(BasisAware(0.1)))


def test_a_temperature_before_it_is_refused_unless_it_is_what_is_tested():
    model = random_model(0)
    with pytest.raises(ValueError, match="before BasisAware changes"):
        generate(model, [0], Sample(Temperature(0.7), BasisAware(0.1)))
    generate(
        model,
        [0],
        Sample(Temperature(0.7), BasisAware(0.1, rank=2, on="processed")),
        max_new_tokens=3,
        seed=0,
    )
    generate(model, [0], Sample(TopK(5), BasisAware(0.1, rank=2)), max_new_tokens=3, seed=0)


def test_beyond_its_budget_a_token_is_rejected_and_counted_as_undecided():
    model, tau = random_model(3, vocabulary=400, width=6), 0.3
    free, tight = (
        generate(model, [0], Sample(BasisAware(tau, rank=None, budget=b)), seed=1, max_new_tokens=30).stats
        for b in (None, 1.0)
    )
    assert "rejected: undecided" not in free
    assert tight["rejected: undecided"] > 0
    assert BasisAware(0.1).budget == DEFAULT_BUDGET
    assert BasisAware(0.1, rank=3, budget=1e9).bind(model, ()).test.budget == 1e9
    assert BasisAware(0.1, rank=3, budget=2e9).bind(model, ()).test.budget == 2e9


def test_unbound_it_says_what_it_needs():
    scores = torch.zeros(1, 3)
    with pytest.raises(TypeError, match="bind"):
        BasisAware(0.1).draw(scores, Step(scores), [Random(0)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0}, "tau"),
        ({"tau": 1.0}, "tau"),
        ({"rank": -1}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"rank": "all"}, "rank"),
        ({"retries": 0}, "retries"),
        ({"exact_up_to": -1}, "exact_up_to"),
        ({"on": "x"}, "on"),
        ({"budget": 0}, "budget"),
        ({"budget": "much"}, "budget"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        BasisAware(**options)


def test_a_rank_beyond_the_width_is_refused_before_the_model_is_called():
    with pytest.raises(ValueError, match="rank"):
        generate(random_model(0), [0], Sample(BasisAware(0.1, rank=4)))


def test_above_the_rank_that_is_affordable_the_kappa_rule_decides_and_says_so():
    model, tau = random_model(3, vocabulary=40, width=6), 0.3
    decoder = Sample(BasisAware(tau, rank=None, exact_up_to=5))
    with pytest.warns(UserWarning, match="rank 6 takes seconds.*SmolLM2"):
        outs = generate(model, [0], decoder, n=300, seed=0, max_new_tokens=1)
    counted = Counter(name for out in outs for name in out.stats)
    assert {name for name in counted if ": " in name} == {"accepted: kappa rule", "rejected: kappa rule"}
    p = (model.output_matrix @ model.hidden).softmax(-1).double().numpy()
    step = KappaRule.typical(7).step(p)
    assert all(p[token] >= tau or step.accepts(token, tau=tau) for token in {out.tokens[0] for out in outs})


def test_a_rule_of_the_models_own_is_taken():
    model = random_model(3, vocabulary=40, width=6)
    nothing = KappaRule(7, (1.0,), (1e9,))
    with pytest.warns(UserWarning, match="the one given"):
        out = generate(
            model, [0], Sample(BasisAware(0.9, rank=6, exact_up_to=5, rule=nothing)), max_new_tokens=1, seed=0
        )
    assert out.stats["fallbacks"] == 1


def test_the_row_lengths_of_a_rule_are_used_and_said():
    model, tau = random_model(3, vocabulary=40, width=6), 0.9
    p = (model.output_matrix @ model.hidden).softmax(-1).double().numpy()
    rule = KappaRule(7, (1.0,), (3.0,), RowLengths(np.where(np.arange(40) == p.argmax(), 1e-3, 10.0)))
    decoder = Sample(BasisAware(tau, rank=6, exact_up_to=5, rule=rule))
    with pytest.warns(UserWarning, match="the one given, with row lengths"):
        outs = generate(model, [0], decoder, n=300, seed=0, max_new_tokens=1)
    step = rule.step(p)
    assert not step.accepts(int(p.argmax()), tau=tau)  # by its short row alone
    assert all(step.accepts(token, tau=tau) for token in {out.tokens[0] for out in outs})


def test_row_lengths_of_another_model_are_refused():
    other = KappaRule(7, (1.0,), (3.0,), RowLengths(np.ones(30)))
    decoder = Sample(BasisAware(0.9, rank=6, exact_up_to=5, rule=other))
    with pytest.raises(ValueError, match="lengths for 30 tokens do not fit probabilities of 40"):
        generate(random_model(3, vocabulary=40, width=6), [0], decoder)


def test_up_to_that_rank_it_is_tested_exactly():
    decoder = Sample(BasisAware(0.3, rank=None, exact_up_to=3))
    out = generate(random_model(0), [0], decoder, seed=1, max_new_tokens=30)
    assert out.stats["tests"] > 0
    assert not any("kappa" in name for name in out.stats)


def small_lm(head):
    torch.manual_seed(0)
    shape = {"kind": "rnn_lm", "vocab_size": 12, "width": 4, "head": head}
    return config_from_dict(shape, "model").build().eval()


def in_place(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.5)


def loaded(model):
    model.load_state_dict({name: it + 1 for name, it in model.state_dict().items()})


def replaced(model):
    for module in model.modules():
        for name, it in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(it.detach() + 1, it.requires_grad))


def optimised(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.output_matrix.square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("change", [in_place, loaded, replaced, optimised])
@pytest.mark.parametrize(
    "head",
    [
        {"kind": "softmax"},
        {"kind": "softmax", "tied": True},
        {"kind": "tempered"},
        {"kind": "tempered", "tied": True},
        {"kind": "bilinear"},
        {"kind": "bilinear", "tied": True},
    ],
    ids=lambda head: head["kind"] + " tied" * head.get("tied", False),
)
def test_the_test_is_that_of_the_weights_as_they_are(head, change):
    model, pick = small_lm(head), BasisAware(0.1, rank=None)
    first = pick.bind(model, ()).test
    assert pick.bind(model, ()).test is first
    change(model)
    second = pick.bind(model, ()).test
    assert second is not first
    assert pick.bind(model, ()).test is second
    assert torch.equal(second.weight, model.output_matrix.detach())


def test_every_rank_has_its_test_and_old_ones_are_let_go():
    model = small_lm({"kind": "softmax"})
    two, three = BasisAware(0.1, rank=2), BasisAware(0.1, rank=3)
    tests = [pick.bind(model, ()).test for pick in (two, three, two, three)]
    assert [test.rank for test in tests] == [2, 3, 2, 3]
    assert tests[0] is tests[2]
    assert tests[1] is tests[3]
    old = weakref.ref(tests[0])
    in_place(model)
    two.bind(model, ())
    del tests
    assert old() is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_fingerprint_detects_the_last_bit_of_one_number_signs_and_order(dtype):
    W = torch.randn(6, 4, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert picks._fingerprint(W) == picks._fingerprint(W.clone())
    last_bit = W.clone()
    bits = last_bit.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[W.element_size()])
    bits[4, 2] ^= 1
    signs = torch.cat((-W[:2], W[2:]))
    others = [last_bit, -W, signs, W[:, [1, 0, 2, 3]], W[[1, 0, 2, 3, 4, 5]], W[:5], W.reshape(4, 6)]
    assert len({picks._fingerprint(it) for it in (W, *others)}) == 8


def test_what_stands_in_for_a_model_has_its_tests():
    model, pick = random_model(0), BasisAware(0.1)
    assert pick.bind(DelegatingModel(DelegatingModel(model)), ()).test is pick.bind(model, ()).test


def test_the_next_process_finds_what_this_one_made(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    monkeypatch.setattr(picks, "MIN_CACHED_SIZE", 1)
    decoder = Sample(BasisAware(0.3, rank=2))
    first = generate(random_model(0), [0], decoder, seed=1, max_new_tokens=20)
    assert len(list((tmp_path / "basis").iterdir())) == 1
    monkeypatch.setattr(whitening, "whiten", lambda *_: pytest.fail("made again"))
    second = generate(random_model(0), [0], decoder, seed=1, max_new_tokens=20)  # another model of the same W
    assert first.tokens == second.tokens


def test_a_small_matrix_is_not_worth_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    generate(random_model(0), [0], Sample(BasisAware(0.3, rank=2)), seed=1, max_new_tokens=5)
    assert list(tmp_path.iterdir()) == []
