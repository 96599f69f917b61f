import math

import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import unspool as us
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import ArgMax
from unspool.decode.search import Beam, ContrastiveSearch, Greedy, Sample
from unspool.decode.search.sampling import bind_transforms, check_transforms, reshape, reshape_with_norm
from unspool.decode.transforms import (
    LogitBias,
    MinLength,
    RepetitionPenalty,
    SequenceBias,
    Temperature,
    TopK,
    TopP,
)
from unspool.interfaces import Step
from unspool.testing import TableModel, random_table

LOGITS = torch.tensor([[3.0, 1.0, -2.0, 0.5], [0.5, -1.0, 4.0, 2.0]])
STEP = Step(LOGITS.log_softmax(-1), log_norm_N=LOGITS.logsumexp(-1))
IDS = torch.tensor([[0, 2], [3, 2]])
HISTORY = [Hypothesis(0, 0, tuple(row)) for row in IDS.tolist()]

CHAINS = {
    "penalty alone": ([RepetitionPenalty(1.5)], [RepetitionPenaltyLogitsProcessor(1.5)]),
    "the usual order": (
        [RepetitionPenalty(1.3), Temperature(0.7), TopK(3), TopP(0.9)],
        [
            RepetitionPenaltyLogitsProcessor(1.3),
            TemperatureLogitsWarper(0.7),
            TopKLogitsWarper(3),
            TopPLogitsWarper(0.9),
        ],
    ),
    "after a temperature": (
        [Temperature(0.5), RepetitionPenalty(1.3)],
        [TemperatureLogitsWarper(0.5), RepetitionPenaltyLogitsProcessor(1.3)],
    ),
    "after a truncation": (
        [TopK(2), Temperature(2.0), RepetitionPenalty(1.3), RepetitionPenalty(2.0)],
        [
            TopKLogitsWarper(2),
            TemperatureLogitsWarper(2.0),
            RepetitionPenaltyLogitsProcessor(1.3),
            RepetitionPenaltyLogitsProcessor(2.0),
        ],
    ),
    "after a bias": (
        [SequenceBias({(0,): 2.5, (2,): -3.0}), RepetitionPenalty(1.7)],
        [SequenceBiasLogitsProcessor({(0,): 2.5, (2,): -3.0}), RepetitionPenaltyLogitsProcessor(1.7)],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_rules_on_logits_is_hugging_faces(name):
    ours, theirs = CHAINS[name]
    want = LogitsProcessorList(theirs)(IDS, LOGITS).log_softmax(-1)
    torch.testing.assert_close(reshape(STEP, HISTORY, ours), want)


def test_by_hand():
    # Logits 3 and −2 occurred: 3/1.5 = 2 and −2 · 1.5 = −3; the others stay 1 and 0.5.
    want = torch.tensor([[2.0, 1.0, -3.0, 0.5]]).log_softmax(-1)
    found = reshape(STEP.select(torch.tensor([0])), HISTORY[:1], [RepetitionPenalty(1.5)])
    torch.testing.assert_close(found, want)


def test_without_logits_the_log_probabilities_are_penalised():
    step = Step(torch.tensor([[0.5, 0.25, 0.25]]).log())
    found = reshape(step, [Hypothesis(0, 0, (0,))], [RepetitionPenalty(2.0)]).exp()
    assert found[0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_a_transform_is_given_a_distribution_and_the_step_is_not_changed():
    seen = []

    def note(scores_NV, step, history):
        seen.append((scores_NV.exp().sum(-1), step.logp_NV))
        return scores_NV * 3 + 7

    before = STEP.log_norm_N.clone()
    reshape(STEP, HISTORY, [note, note, RepetitionPenalty(1.2)])
    for total_N, logp_NV in seen:
        torch.testing.assert_close(total_N, torch.ones(2))
        assert logp_NV is STEP.logp_NV
    assert torch.equal(STEP.log_norm_N, before)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (TopP, r"write TopP\("),
        (Sample(), "it is not a function"),
        (ArgMax(), "only Sample accepts"),
        ("TopP(0.9)", "not a function of"),
        (lambda scores: scores, "not a function of"),
        (math.inf, "not a function of"),
    ],
)
def test_what_is_no_transform_is_refused_by_every_search(rule, words):
    with pytest.raises(TypeError, match=words):
        check_transforms("a search", [rule])
    for decoder in (Greedy, lambda *rules: Beam(3, *rules)):
        with pytest.raises(TypeError, match=words):
            decoder(rule)
    with pytest.raises(TypeError, match=words):
        Sample(rule, TopP(0.9))


def test_a_rule_is_told_of_the_job():
    job = Job(((1,),), (5,), (0,), eos=frozenset({3}))
    model = random_table(5, seed=0)
    assert bind_transforms((TopP(0.9), MinLength(2)), model, job) == (TopP(0.9), MinLength(2, (3,)))
    assert ContrastiveSearch().streams


def test_logits_as_the_rules_have_left_them():
    logits = torch.tensor([[2.0, 1.0, 0.5]])
    step = Step(logits.log_softmax(-1), log_norm_N=logits.logsumexp(-1))
    scores, log_norm = reshape_with_norm(step, [Hypothesis(0, 0, (1,))], (TopK(2),))
    left = scores + log_norm[:, None]
    torch.testing.assert_close(left, torch.tensor([[2.0, 1.0, -torch.inf]]))


def test_what_a_host_asks_of_every_search_comes_first():
    only = LogitBias({0: -99.0})
    job = Job(((1,),), (2,), (0,), first=(only,))
    assert bind_transforms((TopK(2),), random_table(4, 0), job) == (only, TopK(2))
    for decoder in (Greedy(), Sample(TopK(1)), Beam(2)):
        table = TableModel(lambda row: [0.9, 0.06, 0.03, 0.01])
        paths = [path for frontier in decoder(table, job) for path in frontier.ended]
        assert paths[0].tokens == (1, 1)


MALFORMED = {
    "nothing": (lambda *_: None, TypeError, "returned None for scores"),
    "one row": (lambda scores, *_: scores[0], TypeError, "returned a tensor of shape"),
    "one column": (lambda scores, *_: scores[:, :1], TypeError, "returned a tensor of shape"),
    "integers": (lambda scores, *_: scores.long(), TypeError, "returned a tensor of torch.int64"),
    "booleans": (lambda scores, *_: scores > 0, TypeError, "returned a tensor of torch.bool"),
    "numpy": (lambda scores, *_: scores.numpy(), TypeError, "returned a"),
    "NaN": (lambda scores, *_: scores * math.nan, ValueError, "returned NaN in row 0"),
    "one NaN": (
        lambda scores, *_: scores.index_fill(1, torch.tensor([3]), math.nan),
        ValueError,
        "returned NaN",
    ),
    "infinity": (lambda scores, *_: torch.full_like(scores, math.inf), ValueError, "returned .∞ in row 0"),
    "no token": (lambda scores, *_: scores - math.inf, ValueError, "returned −∞ only in row 0"),
}


@pytest.mark.parametrize("size", [8, 5000])
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_transform_gets_one_error_at_any_vocabulary_size(name, size):
    rule, kind, said = MALFORMED[name]
    model = TableModel(lambda _: [1 / size] * size)
    others = (us.TopP(0.9), us.RepetitionPenalty(1.1))
    searches = [
        us.Greedy(rule),
        us.Sample(rule),
        us.Sample(us.Temperature(0.5), rule, us.TopK(2)),
        us.Beam(2, rule),
    ]
    searches += [us.Sample(rule, other) for other in others] + [us.Sample(other, rule) for other in others]
    searches += [us.Speculative(model, rule), us.StochasticBeam(2, rule), us.Sample(rule, us.Mirostat(3.0))]
    for decoder in searches:
        with pytest.raises(kind, match=said) as error:
            us.generate(model, [1, 2], decoder, max_new_tokens=2, seed=0)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [8, 5000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_transform_may_return_floats_of_another_dtype(size, dtype):
    model = TableModel(lambda _: [1 / size] * size)
    drawn = [
        us.generate(model, [1, 2], us.Sample(rule), max_new_tokens=6, seed=0).tokens
        for rule in (lambda scores, *_: scores.to(dtype), lambda scores, *_: scores.to(dtype).float())
    ]
    assert drawn[0] == drawn[1]
