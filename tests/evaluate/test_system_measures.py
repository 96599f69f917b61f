from math import exp

import pytest
import torch

import unspool as us
from unspool.evaluate import overlap, perplexity
from unspool.evaluate.system_measures import measure_system, paired_tests
from unspool.testing import bigram
from unspool.tokenization.vocabulary import train_characters

TEXT = train_characters(["abcdef. "])


def model(seed=0):
    torch.manual_seed(seed)
    sizes = {"vocab_size": TEXT.vocab_size, "width": 8, "heads": 2, "inner_width": 8, "layers": 1}
    return us.models.TransformerConfig(**sizes).build(TEXT).eval()


def test_measures_of_texts_alone():
    found = measure_system("x", ["a b a b a b a b", "c d", ""])
    assert (found.texts, found.empty) == (3, 1)
    assert found.values["length"] == pytest.approx(10 / 3)
    assert found.values["loops"] == pytest.approx(1 / 3)
    assert found.values["rep-4"] == pytest.approx((3 / 5) / 3)  # five 4-grams, two of them different
    assert found.values["distinct-1"] == pytest.approx(4 / 10)
    assert "BLEU" not in found.values
    assert set(found.intervals(samples=20)) == {"length", "rep-4", "loops", "approximate loops"}


def test_texts_that_nearly_repeat_count_as_approximate_loops():
    numbered = " ".join(f"{n}. Wash the dishes and dry them." for n in range(12))
    found = measure_system("x", [numbered, "c d"])
    assert (found.values["loops"], found.values["approximate loops"]) == (0, 0.5)
    assert "nearly" in found.signatures["approximate loops"]


def test_references_give_sacrebleus_scores_and_signatures():
    outputs, references = ["a b c d e", "x y z"], ["a b c d f", "x y z w"]
    found, theirs = measure_system("x", outputs, references=references), overlap(outputs, references)
    assert found.values["BLEU"] == pytest.approx(theirs.bleu)
    assert found.values["chrF"] == pytest.approx(theirs.chrf)
    assert found.values["TER"] == pytest.approx(theirs.ter)
    assert found.values["length ratio"] == pytest.approx(8 / 9)
    assert "version" in found.signatures["BLEU"]


def test_perplexity_without_prompts_is_that_of_perplexity():
    texts, judge = ["abc def", "fedcba", "a"], model()
    found = measure_system("x", texts, model=judge)
    assert found.values["perplexity"] == pytest.approx(perplexity(judge, texts[:2]).value)
    assert "fit" not in found.values


def test_with_prompts_it_is_of_the_text_after_its_prompt():
    judge = model()
    found = measure_system("x", ["bc", "de"], prompts=["a", "f"], model=judge)
    scores = us.score(judge, ["a", "f"], ["bc", "de"])
    assert found.values["perplexity"] == pytest.approx(exp(-sum(it.total for it in scores) / 4))
    assert found.values["fit"] == pytest.approx(sum(it.total / 2 for it in scores) / 2)
    assert {"fit", "similarity"} <= set(found.summed)
    holed = measure_system("x", ["bc", "", "de"], prompts=["a", "b", "f"], model=judge)
    assert holed.values["fit"] == pytest.approx(found.values["fit"])
    assert "fit" not in holed.summed


def test_mauve_of_texts_with_themselves_is_one():
    texts = [f"{a}{b}{c}{d}" for a in "abcdef" for b in "abcdef" for c in "ab." for d in "abc"]
    found = measure_system("x", texts, human=texts, model=model())
    assert found.values["MAUVE"] == pytest.approx(1)
    assert found.signatures["MAUVE"].startswith("324 human and 324 generated texts, each cut to 4 tokens")
    assert found.intervals(samples=10)["MAUVE"].high == pytest.approx(1)


def test_mauve_of_few_texts_has_a_note():
    texts = ["abc", "bcd"] * 10
    found = measure_system("x", texts, human=texts, model=model())
    assert "MAUVE" not in found.values
    assert any("MAUVE: MAUVE needs at least 300 human texts" in note for note in found.notes)


def test_measures_with_more_than_one_definition_say_which_it_is():
    found = measure_system("x", ["a b a", "c d"])
    assert "corpus level" in found.signatures["distinct-1"]
    assert "5,000 most frequent" in found.signatures["Zipf"]


def test_missing_measures_have_a_note():
    found = measure_system("x", ["a a a"])
    assert {note.partition(":")[0] for note in found.notes} == {"Zipf", "self-BLEU"}
    found = measure_system("x", ["a", "b"], model=bigram([[0.5, 0.5], [0.5, 0.5]]))
    assert any("needs a tokenizer" in note for note in found.notes)


def test_pairs_of_systems():
    good = measure_system("good", ["a b c d"] * 20, references=["a b c d"] * 20)
    bad = measure_system("bad", ["x y"] * 20, references=["a b c d"] * 20)
    found = paired_tests(good, bad, samples=200)
    assert found["BLEU"].difference == pytest.approx(good.values["BLEU"] - bad.values["BLEU"])
    assert found["BLEU"].p < 0.01
    assert found["loops"].p == 1
    with pytest.raises(ValueError, match="1 outputs but good 20"):
        paired_tests(measure_system("one", ["a b"]), good)


@pytest.mark.parametrize(
    ("texts", "beside", "said"),
    [
        (["", " "], {}, "all outputs of x are empty"),
        (["a"], {"references": ["a", "b"]}, "1 outputs but 2 references"),
        (["a"], {"prompts": []}, "1 outputs but 0 prompts"),
    ],
)
def test_mismatched_arguments_raise(texts, beside, said):
    with pytest.raises(ValueError, match=said):
        measure_system("x", texts, **beside)


def test_nats_by_hand():
    letters = train_characters(["ab"])
    size = letters.vocab_size
    even = bigram([[1 / size] * size] * size, tokenizer=letters)
    assert measure_system("x", ["abab"], model=even).values["perplexity"] == pytest.approx(size)
