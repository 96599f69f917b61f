import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import NoBadWordsLogitsProcessor, SequenceBiasLogitsProcessor

from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms import BadWords, LogitBias, SequenceBias
from unspool.decode.transforms.penalties import due, encode_words
from unspool.interfaces import Step
from unspool.testing import TableModel

LOGIT_BIAS_SCORES = torch.tensor([[-1.0, -2.0, -math.inf]])


def test_logit_bias_by_hand():
    assert LogitBias({1: 1.5, 2: 100.0})(
        LOGIT_BIAS_SCORES, Step(LOGIT_BIAS_SCORES), [Hypothesis(0, 0, ())]
    ).tolist() == [[-1.0, -0.5, -math.inf]]


def test_logit_bias_it_is_a_value_however_it_was_written():
    rule = LogitBias({5: -1, 2: 0.5})
    assert rule.bias == ((2, 0.5), (5, -1.0))
    assert rule == LogitBias([(5, -1.0), (2, 0.5)])
    assert hash(rule) == hash(LogitBias({2: 0.5, 5: -1.0}))


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_every_row_gets_the_same_bias_and_the_opposite_takes_it_back(any_scores, data):
    scores = data.draw(any_scores).double()
    table = data.draw(st.dictionaries(st.integers(0, scores.shape[1] - 1), st.floats(-50, 50), min_size=1))
    paths = [Hypothesis(0, 0, ())] * len(scores)
    there = LogitBias(table)(scores, Step(scores), paths)
    for token, bias in table.items():
        assert torch.equal(there[:, token], scores[:, token] + bias)
    back = LogitBias({token: -bias for token, bias in table.items()})(there, Step(scores), paths)
    assert torch.allclose(back, scores, atol=1e-9)


@pytest.mark.parametrize(
    ("bias", "error"),
    [({}, ValueError), ({0: math.nan}, ValueError), ({-1: 1.0}, ValueError), ({0: "1"}, TypeError)],
)
def test_logit_bias_impossible_biases_are_refused(bias, error):
    with pytest.raises(error, match=r"LogitBias\.bias"):
        LogitBias(bias)


def test_logit_bias_tokens_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"LogitBias\.bias holds the token ids \[3\]"):
        LogitBias({3: 1.0})(LOGIT_BIAS_SCORES, Step(LOGIT_BIAS_SCORES), [Hypothesis(0, 0, ())])


SEQUENCE_BIAS_SCORES = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])


def test_sequence_bias_by_hand():
    rule = SequenceBias({(0,): 1.0, (3, 0): 0.5, (2, 3, 1): -5.0})
    assert rule(SEQUENCE_BIAS_SCORES, Step(SEQUENCE_BIAS_SCORES), [Hypothesis(0, 0, ())]).tolist() == [
        [0.0, -2.0, -3.0, -4.0]
    ]
    assert rule(
        SEQUENCE_BIAS_SCORES, Step(SEQUENCE_BIAS_SCORES), [Hypothesis(0, 0, (2,), (3,))]
    ).tolist() == [[0.5, -7.0, -3.0, -4.0]]


def test_sequence_bias_it_is_a_value_however_it_was_written():
    rule = SequenceBias({(3, 0): 0.5, (0,): 1})
    assert rule == SequenceBias([([0], 1.0), ([3, 0], 0.5)])
    assert hash(rule) == hash(SequenceBias([([0], 1.0), ([3, 0], 0.5)]))
    assert rule.bias == (((0,), 1.0), ((3, 0), 0.5))


tables = st.dictionaries(
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    st.integers(-40, 40).map(lambda eighths: eighths / 8),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=100)
@given(tables, st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=3))
def test_the_scores_are_those_of_hugging_face(table, ids):
    scores = SEQUENCE_BIAS_SCORES.expand(len(ids), 4)
    theirs = SequenceBiasLogitsProcessor([[list(key), bias] for key, bias in table.items()])(
        torch.tensor(ids), scores
    )
    ours = SequenceBias(table)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:1]), tuple(row[1:])) for row in ids]
    )
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bias", [{}, {(): 1.0}, {(0,): -math.inf}, {(0,): math.nan}])
def test_sequence_bias_impossible_biases_are_refused(bias):
    with pytest.raises(ValueError, match=r"SequenceBias\.bias"):
        SequenceBias(bias)


def test_sequence_bias_tokens_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"SequenceBias\.bias holds the token ids \[4\]"):
        SequenceBias({(0, 4): 1.0})(SEQUENCE_BIAS_SCORES, Step(SEQUENCE_BIAS_SCORES), [Hypothesis(0, 0, ())])


BAD_WORDS_SCORES = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()


def banned(rule, path):
    return (rule(BAD_WORDS_SCORES, Step(BAD_WORDS_SCORES), [path]) == -math.inf)[0].nonzero()[:, 0].tolist()


def test_bad_words_by_hand():
    rule = BadWords([[3], [0, 1], [2, 0, 2]])
    assert banned(rule, Hypothesis(0, 0, ())) == [3]
    assert banned(rule, Hypothesis(0, 0, (0,))) == [1, 3]
    assert banned(rule, Hypothesis(0, 0, (2,), (0,))) == [1, 2, 3]
    assert banned(BadWords([[0, 1]]), Hypothesis(0, 0, (1,))) == []


def test_order_and_repetition_make_no_difference():
    assert BadWords([[3], [0, 1], [3]]) == BadWords(((0, 1), (3,)))
    assert hash(BadWords([[3], [0, 1]])) == hash(BadWords([[0, 1], [3]]))


def test_a_bad_word_does_not_come_back_through_an_earlier_rule():
    left = torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]])
    out = BadWords([[0]])(left, Step(BAD_WORDS_SCORES), [Hypothesis(0, 0, ())])
    assert out.tolist() == [[-math.inf, 0.0, -math.inf, -math.inf]]


words = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(deadline=None, max_examples=150)
@given(words, st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=2, max_size=3))
def test_the_banned_set_is_that_of_hugging_face(sequences, ids):
    scores = BAD_WORDS_SCORES.expand(len(ids), 4)
    theirs = NoBadWordsLogitsProcessor(sequences)(torch.tensor(ids), scores)
    ours = BadWords(sequences)(
        scores, Step(scores), [Hypothesis(0, 0, tuple(row[:2]), tuple(row[2:])) for row in ids]
    )
    possible = (theirs > -math.inf).any(dim=-1)
    assert torch.equal(ours[possible], theirs[possible])
    assert torch.equal(ours[~possible], scores[~possible])


@pytest.mark.parametrize(
    ("sequences", "error"),
    [
        ([], ValueError),
        ([[]], ValueError),
        ([[-1]], ValueError),
        ([""], ValueError),
        ("ab", TypeError),
        ([3], TypeError),
    ],
)
def test_impossible_words_are_refused(sequences, error):
    with pytest.raises(error, match=r"BadWords\.sequences"):
        BadWords(sequences)


def test_words_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"BadWords\.sequences holds the token ids \[4\], but .* 4 columns"):
        banned(BadWords([[0, 4]]), Hypothesis(0, 0, ()))


def test_a_sequence_is_due_when_all_but_its_last_token_was_just_written():
    sequences = [(7,), (1, 2), (3, 1, 4), (3, 3)]
    history = [Hypothesis(0, 0, (3,), (1,)), Hypothesis(1, 0, ())]
    assert set(due(sequences, history)) == {(0, (7,)), (0, (1, 2)), (0, (3, 1, 4)), (1, (7,))}


tokens = st.lists(st.integers(0, 2), max_size=5).map(tuple)


@given(st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)), tokens, tokens)
def test_due_is_its_definition(sequences, prompt, written):
    said = prompt + written
    wanted = {s for s in sequences if len(s) == 1 or said[-(len(s) - 1) :] == s[:-1]}
    assert {s for _, s in due(sequences, [Hypothesis(0, 0, prompt, written)])} == wanted


JOB = Job(((1,),), (5,), (0,))


class Letters:
    """One letter per token, and a token before every text."""

    bos_id, eos_ids = 0, frozenset()

    def encode(self, text):
        return [0, *(" abcd".index(letter) + 1 for letter in text)]


MODEL = TableModel(lambda row: [1 / 6] * 6, tokenizer=Letters())


def test_words_become_tokens_without_what_begins_a_text():
    assert encode_words("ab", MODEL, "word") == (2, 3)
    assert encode_words((4, 5), MODEL, "word") == (4, 5)
    with pytest.raises(ValueError, match="the word 'ab' needs a tokenizer"):
        encode_words("ab", TableModel(lambda row: [0.5, 0.5]), "word")


def test_bad_words_are_banned_with_and_without_a_space_before_them():
    assert BadWords(("a", (5,))).bind(MODEL, JOB) == BadWords([(2,), (1, 2), (5,)])
    assert BadWords((" a",)).bind(MODEL, JOB) == BadWords([(1, 2)])


def test_a_bias_is_given_as_it_stands():
    assert SequenceBias({"ab": 1.0, (3,): 2.0}).bind(MODEL, JOB) == SequenceBias({(2, 3): 1.0, (3,): 2.0})
