import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import FrequencyPenalty, PresencePenalty, RepetitionPenalty
from unspool.decode.transforms.penalties import OccurrencePenalty, occurrences, tokens_so_far
from unspool.interfaces import Step


def test_repetition_penalty_by_hand():
    scores = torch.tensor([[0.5, 0.25, 0.25]]).log()
    out = RepetitionPenalty(2.0)(scores, Step(scores), [Hypothesis(0, 0, (1,), (0, 0))])
    assert out.exp()[0].tolist() == pytest.approx([0.25, 0.0625, 0.25])
    out = RepetitionPenalty(2.0, prompt=False)(scores, Step(scores), [Hypothesis(0, 0, (1,), (0, 0))])
    assert out.exp()[0].tolist() == pytest.approx([0.25, 0.25, 0.25])


def test_repetition_penalty_of_logits_by_hand():
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    norm = logits.logsumexp(-1)
    step = Step(logits - norm[:, None], log_norm_N=norm)
    out = RepetitionPenalty(2.0)(step.logp_NV, step, [Hypothesis(0, 0, (1,), (0,))])
    assert (out + norm[:, None])[0].tolist() == pytest.approx([1.0, -2.0, 0.5])


def test_one_is_the_identity_and_nothing_comes_alive():
    scores = torch.tensor([[0.0, -math.inf, -2.0]])
    paths = [Hypothesis(0, 0, (0, 1, 2))]
    assert torch.equal(RepetitionPenalty(1.0)(scores, Step(scores), paths), scores)
    assert RepetitionPenalty(5.0)(scores, Step(scores), paths).tolist() == [[0.0, -math.inf, -10.0]]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), penalty=st.floats(0.5, 3))
def test_on_log_probabilities_it_is_hugging_faces(any_scores, data, penalty):
    scores = data.draw(any_scores)
    token = st.integers(0, scores.shape[1] - 1)
    ids = [data.draw(st.lists(token, min_size=5, max_size=5)) for _ in scores]
    history = [Hypothesis(0, 0, tuple(row[:2]), tuple(row[2:])) for row in ids]
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor(ids), scores)
    assert torch.equal(RepetitionPenalty(penalty)(scores, Step(scores), history), theirs)
    theirs = RepetitionPenaltyLogitsProcessor(penalty, prompt_ignore_length=2)(torch.tensor(ids), scores)
    assert torch.equal(RepetitionPenalty(penalty, prompt=False)(scores, Step(scores), history), theirs)


def test_hugging_face_on_raw_logits_depends_on_a_constant_that_means_nothing():
    logits, ids = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0]])
    theirs = RepetitionPenaltyLogitsProcessor(1.5)
    low, high = theirs(ids, logits).softmax(-1), theirs(ids, logits + 10).softmax(-1)
    assert float(low[0, 0]) == pytest.approx(0.506, abs=1e-3)
    assert float(high[0, 0]) == pytest.approx(0.035, abs=1e-3)
    ours = [
        RepetitionPenalty(1.5)(logp, Step(logp), [Hypothesis(0, 0, (0,))])
        for logp in (logits.log_softmax(-1), (logits + 10).log_softmax(-1))
    ]
    assert torch.allclose(ours[0], ours[1], atol=1e-6)


@pytest.mark.parametrize("penalty", [0, -1, math.nan, math.inf])
def test_repetition_penalty_impossible_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=r"RepetitionPenalty\.penalty is .*0 < penalty"):
        RepetitionPenalty(penalty)


FREQUENCY_PENALTY_SCORES = torch.tensor([[-1.0, -2.0, -3.0]])
FREQUENCY_PENALTY_PATH = Hypothesis(0, 0, (2,), (0, 0, 0))


def test_frequency_penalty_by_hand():
    assert FrequencyPenalty(0.5)(
        FREQUENCY_PENALTY_SCORES, Step(FREQUENCY_PENALTY_SCORES), [FREQUENCY_PENALTY_PATH]
    ).tolist() == [[-2.5, -2.0, -3.0]]
    assert FrequencyPenalty(0.5, prompt=True)(
        FREQUENCY_PENALTY_SCORES, Step(FREQUENCY_PENALTY_SCORES), [FREQUENCY_PENALTY_PATH]
    ).tolist() == [[-2.5, -2.0, -3.5]]


def test_frequency_penalty_zero_is_the_identity():
    assert torch.equal(
        FrequencyPenalty(0)(
            FREQUENCY_PENALTY_SCORES, Step(FREQUENCY_PENALTY_SCORES), [FREQUENCY_PENALTY_PATH]
        ),
        FREQUENCY_PENALTY_SCORES,
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4), st.floats(-2, 2, width=32))
def test_every_row_is_charged_for_each_of_its_tokens(rows, penalty):
    scores = FREQUENCY_PENALTY_SCORES.expand(len(rows), 3)
    out = FrequencyPenalty(penalty)(scores, Step(scores), [Hypothesis(0, 0, (), tuple(row)) for row in rows])
    for row, tokens in enumerate(rows):
        wanted = [
            score - penalty * tokens.count(token)
            for token, score in enumerate(FREQUENCY_PENALTY_SCORES[0].tolist())
        ]
        assert out[row].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("penalty", [math.nan, math.inf, -1e10])
def test_frequency_penalty_impossible_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=r"FrequencyPenalty\.penalty is"):
        FrequencyPenalty(penalty)


PRESENCE_PENALTY_SCORES = torch.tensor([[-1.0, -2.0, -3.0]])
PRESENCE_PENALTY_PATH = Hypothesis(0, 0, (2,), (0, 0, 0))


def test_presence_penalty_by_hand():
    assert PresencePenalty(0.5)(
        PRESENCE_PENALTY_SCORES, Step(PRESENCE_PENALTY_SCORES), [PRESENCE_PENALTY_PATH]
    ).tolist() == [[-1.5, -2.0, -3.0]]
    assert PresencePenalty(0.5, prompt=True)(
        PRESENCE_PENALTY_SCORES, Step(PRESENCE_PENALTY_SCORES), [PRESENCE_PENALTY_PATH]
    ).tolist() == [[-1.5, -2.0, -3.5]]
    assert PresencePenalty(-1)(
        PRESENCE_PENALTY_SCORES, Step(PRESENCE_PENALTY_SCORES), [PRESENCE_PENALTY_PATH]
    ).tolist() == [[0.0, -2.0, -3.0]]


def test_presence_penalty_zero_is_the_identity():
    assert torch.equal(
        PresencePenalty(0)(PRESENCE_PENALTY_SCORES, Step(PRESENCE_PENALTY_SCORES), [PRESENCE_PENALTY_PATH]),
        PRESENCE_PENALTY_SCORES,
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4), st.floats(-2, 2, width=32))
def test_every_row_is_charged_for_its_own_tokens_once(rows, penalty):
    scores = PRESENCE_PENALTY_SCORES.expand(len(rows), 3)
    out = PresencePenalty(penalty)(scores, Step(scores), [Hypothesis(0, 0, (), tuple(row)) for row in rows])
    for row, tokens in enumerate(rows):
        wanted = [
            score - penalty * (token in tokens)
            for token, score in enumerate(PRESENCE_PENALTY_SCORES[0].tolist())
        ]
        assert out[row].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("penalty", [math.nan, math.inf, -1e10])
def test_presence_penalty_impossible_penalties_are_refused(penalty):
    with pytest.raises(ValueError, match=r"PresencePenalty\.penalty is"):
        PresencePenalty(penalty)


OCCURRENCES_SCORES = torch.zeros(2, 5)


def test_the_prompt_comes_first_if_asked_for():
    path = Hypothesis(0, 0, (1, 2), (3,))
    assert tokens_so_far(path, prompt=True) == (1, 2, 3)
    assert tokens_so_far(path, prompt=False) == (3,)


def test_tokens_are_counted_on_their_own_path():
    history = [Hypothesis(0, 0, (1,), (3, 1, 3)), Hypothesis(0, 0, (4,), ())]
    row, token, count = occurrences(history, True, OCCURRENCES_SCORES)
    assert sorted(zip(row.tolist(), token.tolist(), count.tolist(), strict=True)) == [
        (0, 1, 2),
        (0, 3, 2),
        (1, 4, 1),
    ]
    row, token, count = occurrences(history, False, OCCURRENCES_SCORES)
    assert sorted(zip(row.tolist(), token.tolist(), count.tolist(), strict=True)) == [(0, 1, 1), (0, 3, 2)]


def test_empty_paths_and_foreign_ids_count_nothing():
    for path in (Hypothesis(0, 0, ()), Hypothesis(0, 0, (5, 99))):
        assert [len(found) for found in occurrences([path, path], True, OCCURRENCES_SCORES)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"penalty": math.inf}, r"OccurrencePenalty.penalty is inf"),
        ({"penalty": 1.0, "prompt": 1}, r"OccurrencePenalty.prompt is 1"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises((TypeError, ValueError), match=match):
        OccurrencePenalty(**settings)
