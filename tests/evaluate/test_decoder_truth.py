import math
from random import Random

import numpy as np
import pytest

import unspool as us
from unspool.data.known_languages import Agreement, ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.evaluate.known_truth import decoder_truth
from unspool.testing import TableModel

LANGUAGE = Agreement()


def test_the_true_model_equals_the_language():
    found = decoder_truth(us.Sample(), TrueModel(LANGUAGE), LANGUAGE, sentences=20)
    assert found.kl == pytest.approx(0, abs=1e-6)
    assert found.total_variation == pytest.approx(0, abs=1e-6)
    assert (found.support.precision, found.support.recall) == (1, 1)


@pytest.mark.parametrize("decoder", [us.Sample(us.TopP(0.6)), us.Sample(us.TopK(3)), us.Greedy()])
def test_against_brute_force(decoder):
    """Every number once more, context by context, from sets and sums of plain Python."""
    V = LANGUAGE.vocab_size
    noise = np.random.default_rng(0).dirichlet(np.ones(V), size=V)
    model = TableModel(lambda row: (0.7 * true_next(row) + 0.3 * noise[row[-1]]).tolist())
    found = decoder_truth(decoder, model, LANGUAGE, sentences=15, seed=3)
    dice, numbers = Random(3), []
    for _ in range(15):
        said = LANGUAGE.sample(dice)
        prefixes = [(LANGUAGE.bos, *said[:place]) for place in range(len(said) + 1)]
        numbers += [brute(decoder, model, prefix) for prefix in prefixes]
    means = {name: sum(it[name] for it in numbers) / len(numbers) for name in numbers[0]}
    assert found.contexts == len(numbers)
    for name in ("precision", "recall", "mass_recall", "mass", "size"):
        assert getattr(found.support, name) == pytest.approx(means[name], abs=1e-6), name
    for name in ("kl", "reverse_kl", "total_variation"):
        assert getattr(found, name) == pytest.approx(means[name], abs=1e-5), name


def true_next(row):
    try:
        return LANGUAGE.next(row)
    except ValueError:  # the model must answer any row
        return np.full(LANGUAGE.vocab_size, 1 / LANGUAGE.vocab_size)


def brute(decoder, model, prefix):
    p = model.table(prefix)
    order = sorted(range(len(p)), key=lambda x: -p[x])
    if isinstance(decoder, us.Greedy):
        kept = set(order[:1])
    elif isinstance(decoder.transforms[0], us.TopK):
        kept = set(order[:3])
    else:
        kept, mass = set(), 0.0
        for token in order:
            kept.add(token)
            mass += p[token]
            if mass >= 0.6:
                break
    true = LANGUAGE.next(prefix)
    possible = {x for x in range(len(p)) if true[x] > 0}
    whole = sum(p[x] for x in kept)
    q = [p[x] / whole if x in kept else 0.0 for x in range(len(p))]
    kl = lambda a, b: sum(  # noqa: E731
        x * math.log(x / y) if y else math.inf for x, y in zip(a, b, strict=True) if x
    )
    return {
        "precision": len(kept & possible) / len(kept),
        "recall": len(kept & possible) / len(possible),
        "mass_recall": sum(true[x] for x in kept),
        "mass": whole,
        "size": len(kept),
        "kl": kl(true, q),
        "reverse_kl": kl(q, true),
        "total_variation": sum(abs(a - b) for a, b in zip(q, true, strict=True)) / 2,
    }


def test_rules_that_look_back_see_the_sentence():
    language = ZipfMarkov()
    found = decoder_truth(us.Sample(us.NoRepeatNgram(1)), TrueModel(language), language, sentences=10)
    assert found.support.recall < 1
    assert found.support.precision == 1


def test_any_tail_of_contexts_is_counted():
    dice = Random(0)
    places = sum(len(LANGUAGE.sample(dice)) + 1 for _ in range(70))
    assert decoder_truth(us.Greedy(), TrueModel(LANGUAGE), LANGUAGE, sentences=70).contexts == places


def test_a_mismatched_model_or_language_raises():
    coin = TableModel(lambda row: [0.5, 0.5])
    with pytest.raises(ValueError, match="expected a language model"):
        decoder_truth(us.Greedy(), coin, LANGUAGE)
    with pytest.raises(TypeError, match=r"one of unspool\.data\.known_languages"):
        decoder_truth(us.Greedy(), coin, "agreement")
    with pytest.raises(TypeError, match="token by token"):
        decoder_truth(us.Beam(2), TrueModel(LANGUAGE), LANGUAGE)
