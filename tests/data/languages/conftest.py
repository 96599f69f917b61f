from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest
from scipy.stats import chi2


def enumerate_sentences(language, longest):
    """{sentence: probability} up to a length, and the probability of everything longer, by walking `probabilities`."""
    ended, growing = {}, {(): (1.0, language.start())}
    for _ in range(longest + 1):
        grown = {}
        for words, (chance, state) in growing.items():
            row = language.probabilities(state)
            if row[language.eos] > 0:
                ended[words] = chance * row[language.eos]
            for token in np.flatnonzero(row):
                if token != language.eos:
                    grown[(*words, int(token))] = (chance * row[token], language.after(state, int(token)))
        growing = grown
    return ended, sum(chance for chance, _ in growing.values())


def misfit(language, draws, seed, least=5.0):
    """The χ² probability of the sampled next tokens under `next`, over all prefixes seen often enough."""
    random = Random(seed)
    followers = defaultdict(Counter)
    for _ in range(draws):
        sentence = (*language.sample(random), language.eos)
        for at in range(len(sentence)):
            followers[sentence[:at]][sentence[at]] += 1
    statistic, freedom = 0.0, 0
    for prefix, seen in followers.items():
        if (total := seen.total()) < 40:
            continue
        row = language.next(prefix)
        assert all(row[token] > 0 for token in seen), (prefix, seen)
        expected = row * total
        cells = [token for token in np.flatnonzero(row) if expected[token] >= least]
        rest = total - expected[cells].sum()
        if len(cells) + (rest >= least) < 2:
            continue
        statistic += sum((seen[token] - expected[token]) ** 2 / expected[token] for token in cells)
        if rest >= least:
            statistic += (total - sum(seen[token] for token in cells) - rest) ** 2 / rest
        freedom += len(cells) + (rest >= least) - 1
    assert freedom > 10
    return float(chi2.sf(statistic, freedom))


@pytest.fixture(name="enumerate_sentences")
def _enumerate_sentences():
    return enumerate_sentences


@pytest.fixture(name="misfit")
def _misfit():
    return misfit
