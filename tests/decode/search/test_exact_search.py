import math

import pytest
import torch
from hypothesis import given, strategies as st

import unspool as us
from unspool.decode.hypothesis import Job
from unspool.decode.search.exact_search import ExactSearch
from unspool.testing import TableModel, random_table

END = 0
VOCABULARY = 4
PLAIN = us.decode.Sum()


def model(seed=1):
    """Every prefix has probabilities of its own; token 0 ends."""
    return random_table(VOCABULARY, seed)


def all_texts(it, limit, penalty=PLAIN):
    """Every text after the prompt (1,), best first, with its score."""
    found, growing = [], [((), 0.0)]
    while growing:
        tokens, total = growing.pop()
        for token, p in enumerate(it.table((1, *tokens))):
            text, summed = (*tokens, token), total + math.log(p)
            if token == END or len(text) == limit:
                found.append((penalty(summed, len(text)), text))
            else:
                growing.append((text, summed))
    return sorted(found, reverse=True)


def search(decoder, it, limit, n=1, **options):
    job = Job(((1,),), (limit,), (0,), n, frozenset((END,)), **options)
    ended = [one for step in decoder(it, job) for one in step.ended]
    return sorted(ended, key=lambda one: one.sample)


@pytest.mark.parametrize("penalty", [us.decode.Sum(), us.Length(1.0), us.Length(-0.5), us.GNMT(0.6)])
@given(seed=st.integers(0, 10_000), width=st.integers(1, 6), n=st.integers(1, 3))
def test_the_n_best_of_all_texts_are_found_and_proved(penalty, seed, width, n):
    it, limit = model(seed), 4
    found = search(ExactSearch(max(width, n), length_penalty=penalty), it, limit, n)
    expected = all_texts(it, limit, penalty)[:n]
    assert [one.total for one in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
    assert [one.tokens for one in found] == [text for _, text in expected]
    assert found[0].notes["optimal"]
    assert found[0].notes["bound"] == found[0].total


def test_the_bounds_prune_most_texts():
    # "1 1 1 0" has probability 0.9⁴; there are 3⁰ + 3¹ + 3² + 3³ + … prefixes.
    it = TableModel(lambda row: [0.9, 0.04, 0.03, 0.03] if len(row) > 3 else [0.01, 0.9, 0.05, 0.04])
    (best,) = search(ExactSearch(1), it, 8)
    assert best.tokens == (1, 1, 1, 0)
    assert best.notes["optimal"]
    assert best.notes["read"] < 20


def test_a_beam_misses_what_the_exact_search_finds():
    # Token 1 begins better, but only texts after token 2 are probable.
    rows = {(1,): [0.0, 0.6, 0.4, 0.0], (1, 1): [0.1, 0.3, 0.3, 0.3], (1, 2): [1.0, 0.0, 0.0, 0.0]}
    it = TableModel(lambda row: rows.get(row, [0.1, 0.3, 0.3, 0.3]))
    assert search(us.Beam(1), it, 4)[0].tokens[0] == 1
    (best,) = search(ExactSearch(1), it, 4)
    assert best.tokens == (2, 0)
    assert best.total == pytest.approx(math.log(0.4))


def test_the_empty_text_is_found_first_if_nothing_is_more_probable():
    it = TableModel(lambda row: [0.3, 0.25, 0.25, 0.2])
    (best,) = search(ExactSearch(), it, 30)
    assert (best.tokens, best.finish_reason) == ((END,), "eos")
    assert best.notes["optimal"]
    assert best.notes["read"] == 1


def test_a_spent_budget_leaves_a_bound():
    it, limit = random_table(VOCABULARY, 3, spread=0.5), 6
    (best,) = search(ExactSearch(2, 13, length_penalty=us.Length(1.0)), it, limit)
    (score, _), *_ = all_texts(it, limit, us.Length(1.0))
    assert not best.notes["optimal"]
    assert best.total <= score + 1e-6
    assert best.notes["bound"] >= score - 1e-6
    assert best.notes["bound"] > best.total


def test_the_bound_falls_with_the_budget_to_the_best_score():
    it, limit = random_table(VOCABULARY, 5, spread=0.5), 6
    searches = [ExactSearch(2, budget, length_penalty=us.Length(1.0)) for budget in (5, 50, 50_000)]
    bounds = [search(decoder, it, limit)[0].notes["bound"] for decoder in searches]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == pytest.approx(all_texts(it, limit, us.Length(1.0))[0][0], abs=1e-5)


def test_the_width_does_not_change_a_proved_result():
    it = model(7)
    found = {
        (one.tokens, one.notes["optimal"])
        for width in (1, 3, 50)
        for one in search(ExactSearch(width), it, 5)
    }
    assert len(found) == 1


def test_it_equals_a_beam_that_keeps_every_prefix_of_a_real_model():
    sources = ["3 March 1987", "Friday, 1 May 1908"]
    dates = us.load("dates")
    exact = us.generate(dates, sources, ExactSearch(8), max_new_tokens=12)
    beams = us.generate(dates, sources, us.Beam(64), max_new_tokens=12)
    assert [out.tokens for out in exact] == [out.tokens for out in beams]
    assert [out.total for out in exact] == pytest.approx([out.total for out in beams], abs=1e-4)
    assert all(out.stats["optimal"] for out in exact)


def test_transforms_reshape_the_scores():
    it = model(2)
    (best,) = search(ExactSearch(4, 20_000, us.decode.MinLength(3, eos=END)), it, 4)
    assert len(best.tokens) == 4
    assert best.notes["optimal"]


def test_stop_strings_end_texts():
    dates = us.load("dates")
    out = us.generate(dates, "3 March 1987", "ExactSearch()", max_new_tokens=12, stop="-")
    assert (out.text, out.finish_reason) == ("1987", "stop")


def test_scores_above_zero_are_refused():
    contrast = us.Contrast(us.load("bible"), us.load("bible-weak"))
    with pytest.raises(ValueError, match=r"scores of at most 0.*use Beam"):
        us.generate(contrast, "In the", ExactSearch(), max_new_tokens=3)


def test_nan_is_refused():
    it = TableModel(lambda row: [0.5, float("nan"), 0.25, 0.25])
    with pytest.raises(ValueError, match="NaN"):
        search(ExactSearch(), it, 3)


def test_more_texts_than_the_width_are_refused():
    with pytest.raises(ValueError, match="n=3 is more than"):
        search(ExactSearch(2), model(), 3, n=3)


@pytest.mark.parametrize("text", ["ExactSearch()", "ExactSearch(4, 100, TopK(5), length_penalty=GNMT(0.6))"])
def test_it_is_read_from_a_string(text):
    decoder = us.parse(text)
    assert isinstance(decoder, ExactSearch)
    assert us.parse(repr(decoder)) == decoder


@pytest.mark.parametrize(("arguments", "words"), [((0,), "width"), ((2, 0), "budget"), ((2, 1.5), "budget")])
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        ExactSearch(*arguments)


def test_alternatives_are_recorded():
    (best,) = search(ExactSearch(2), model(), 3, alternatives=2)
    assert [len(one.model) for one in best.ranked] == [2] * len(best.tokens)
    assert torch.tensor([one.model[0][1] for one in best.ranked]).max() <= 0
