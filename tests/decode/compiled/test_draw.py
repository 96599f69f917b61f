import numpy as np
import pytest
import torch

from unspool.decode.shortlist.chain import RULES
from unspool.decode.shortlist.referee import decide
from unspool.decode.transforms import Eta, MinP, Temperature, TopK, TopP, Typical
from unspool.engine import sampling as module
from unspool.engine.sampling import CODES, coded, draw


def test_every_rule_that_torch_knows_has_a_code():
    assert CODES.keys() == RULES.keys()
    kinds = [CODES[rule](rule() if rule is not TopK else TopK(5))[0] for rule in CODES]
    assert sorted(kinds) == list(range(len(CODES)))


def test_a_temperature_of_1_is_no_rule_and_none_is_too_cold():
    kinds, values = coded((Temperature(1.0), TopK(7), Temperature(1e-40)))
    assert kinds.tolist() == [1, 0]
    assert values.tolist() == [7, 1e-30]


CHAINS = [
    (),
    (TopK(40),),
    (TopP(0.9),),
    (MinP(0.05),),
    (Typical(0.9),),
    (Eta(1e-3),),
    (Temperature(0.7), TopP(0.8)),
]


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
@pytest.mark.parametrize("vocabulary", [1, 50, 4099, 200_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_vocabulary_on_any_number_of_threads(chain, vocabulary, threads, monkeypatch):
    monkeypatch.setattr(module, "WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if vocabulary < 40:
        chain = [rule for rule in chain if rule != TopK(40)]
    dice = np.random.default_rng(vocabulary)
    scores = 2 * dice.normal(size=(6, vocabulary)).astype(np.float32)
    before, u = scores.copy(), dice.random(6)
    found = draw(scores, chain, u)
    # Where 200,000 tokens crowd around a threshold, half of the rows are in doubt.
    assert found.sure.sum() >= (2 if vocabulary == 200_000 else 5)
    for row in np.flatnonzero(found.sure):
        token, logp = decide(scores[row], chain, u[row])
        assert (found.token[row], found.logp[row]) == (token, pytest.approx(logp, abs=2e-6))
    np.testing.assert_array_equal(scores, before)
