import pytest
import torch
from hypothesis import given, settings, strategies as st

import unspool as us
from unspool.diagnose.ranked_tokens import DEFAULT_RULES, rank_tokens
from unspool.interfaces import Abilities, Step
from unspool.testing import TableModel, bigram, random_table

WEIGHT = torch.tensor([[0.55], [0.71], [0.29]])


class Letters:
    bos_id, eos_ids = None, frozenset({2})

    def encode(self, text):
        return ["abc".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abc"[i] for i in ids)

    def detokenizer(self, stop=(), after=None):
        return None


class WorkedExample(Abilities):
    """The example of three tokens, as a model."""

    vocab_size, context, tokenizer, output_matrix = 3, None, Letters(), WEIGHT

    def start(self, prompts):
        return Step((2.55 * WEIGHT[:, 0]).log_softmax(-1)[None]), None

    def step(self, state, tokens_N):
        raise AssertionError("one look is enough")


def look(model, *specs, top=3):
    return rank_tokens(model, "a", {spec: us.parse(spec) for spec in specs}, top=top)


def test_the_example_of_the_paper_by_hand():
    basis, threshold = "Sample(BasisAware(0.474, rank=None))", "Sample(Epsilon(0.474))"
    found = look(WorkedExample(), basis, threshold)
    # p = 0.331, 0.498, 0.171: the test cuts a and keeps b and the less probable c
    assert found.tokens == ("b", "a", "c")
    assert found.p == pytest.approx((0.498, 0.331, 0.171), abs=1e-3)
    assert found.kept == {basis: (True, False, True), threshold: (True, False, False)}
    assert found.exceptions(basis) == [2]
    assert found.exceptions(threshold) == []


def test_transforms_apply_in_order():
    model = bigram([[0.5, 0.3, 0.2]] * 3, tokenizer=Letters())
    kept = {
        "Sample()": (True, True, True),
        "Sample(TopP(0.7))": (True, True, False),
        "Sample(TopK(2), MinP(0.9))": (True, False, False),
        # 0.5, 0.3, 0.2 sharpened are 0.73, 0.20, 0.07; flattened 0.37, 0.33, 0.30
        "Sample(Temperature(0.4), TopP(0.7))": (True, False, False),
        "Sample(Temperature(4.0), TopP(0.7))": (True, True, False),
        "Sample(Temperature(4.0), TopP(0.75))": (True, True, True),
        # of the two that are left, the first has 0.625
        "Sample(TopK(2), TopP(0.6))": (True, False, False),
        "Sample(TopP(0.6), TopK(2))": (True, True, False),
    }
    assert look(model, *kept, top=99).kept == kept


def test_a_rule_can_depend_on_the_request():
    model = bigram([[0.5, 0.3, 0.2]] * 3, tokenizer=Letters())
    assert look(model, "Sample(MinLength(2))").kept == {"Sample(MinLength(2))": (True, True, False)}


def test_the_prompt_counts_as_history():
    model = bigram([[0.5, 0.3, 0.2]] * 3, tokenizer=Letters())
    rule = us.Sample(us.NoRepeatNgram(2))
    assert rank_tokens(model, "aba", {"rule": rule}).kept == {"rule": (True, False, True)}


@given(
    st.integers(0, 999),
    st.lists(
        st.sampled_from([us.Temperature(0.3), us.TopP(0.9), us.TopK(3), us.MinP(0.2), us.Epsilon(0.05)]),
        max_size=3,
    ),
)
@settings(max_examples=40, deadline=None)
def test_kept_tokens_are_those_that_sampling_can_draw(seed, rules):
    table = random_table(3, seed).table
    model = TableModel(table, tokenizer=Letters())
    rule = us.Sample(*rules)
    found = rank_tokens(model, "ab", {"rule": rule})
    drawn = us.generate(TableModel(table), [0, 1], rule, n=200, seed=1, max_new_tokens=1, alternatives=3)
    kept = {token for token, keep in zip(found.tokens, found.kept["rule"], strict=True) if keep}
    assert {"abc"[out.tokens[0]] for out in drawn} <= kept
    assert kept == {"abc"[token] for token, logp in drawn[0].ranked[0].drawn if logp > -float("inf")}


def test_basis_aware_can_test_the_processed_distribution():
    own, processed = (
        f"Sample({first}BasisAware(0.474, rank=None{last}))"
        for first, last in (("", ""), ("Temperature(0.5), ", ', on="processed"'))
    )
    found = look(WorkedExample(), own, processed)
    # twice as sharp, b alone is more probable than 0.474, and the segment of what may be true ends elsewhere
    assert found.kept[own] == (True, False, True)
    assert found.kept[processed][0]
    with pytest.raises(ValueError, match="before BasisAware changes"):
        look(WorkedExample(), "Sample(Temperature(0.5), BasisAware(0.474))")


def test_the_error_of_a_rule_goes_to_on_error_or_is_raised():
    model = bigram([[0.5, 0.3, 0.2]] * 3, tokenizer=Letters())
    rules, failed = {"basis": us.Sample(us.BasisAware(0.1)), "top": us.Sample(us.TopK(2))}, []
    found = rank_tokens(
        model,
        "a",
        rules,
        on_error=lambda name, error: failed.append(name),
    )
    assert (found.kept, failed) == ({"top": (True, True, False)}, ["basis"])
    with pytest.raises(ValueError, match="needs the matrix"):
        rank_tokens(model, "a", rules)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="needs a tokenizer"):
        look(bigram([[0.5, 0.5]] * 2), "Sample()")
    with pytest.raises(ValueError, match="prompt is empty"):
        rank_tokens(WorkedExample(), "", {})
    with pytest.raises(ValueError, match="top is 0"):
        look(WorkedExample(), "Sample()", top=0)


def test_default_rules_can_be_parsed():
    assert [type(us.parse(rule)) for rule in DEFAULT_RULES] == [us.Sample] * len(DEFAULT_RULES)
