import math

import pytest
import torch

from unspool.decode.generate import generate
from unspool.decode.search import Beam, Greedy, Sample
from unspool.decode.search.candidates import alternatives
from unspool.decode.transforms import TopK
from unspool.testing import TableModel

P = [0.1, 0.5, 0.15, 0.25]


def test_by_hand():
    logp = torch.tensor([P]).log()
    cut = logp.masked_fill(logp < math.log(0.2), -math.inf).log_softmax(-1)
    (ranked,) = alternatives(logp, cut, 3)
    assert [token for token, _ in ranked.model] == [1, 3, 2]
    assert [math.exp(value) for _, value in ranked.model] == pytest.approx([0.5, 0.25, 0.15])
    assert [token for token, _ in ranked.drawn] == [1, 3]
    assert [math.exp(value) for _, value in ranked.drawn] == pytest.approx([2 / 3, 1 / 3])


def test_of_equal_alternatives_the_smaller_tokens_are_named():
    (ranked,) = alternatives(torch.tensor([[-1.0, -2.0, -1.0, -1.0]]), torch.zeros(1, 4), 2)
    assert ranked.model == ((0, -1.0), (2, -1.0))
    assert ranked.drawn == ((0, 0.0), (1, 0.0))


@pytest.mark.parametrize("decoder", [Greedy(), Sample(TopK(2)), Beam(3)])
def test_every_step_of_a_text_has_them(decoder):
    out = generate(TableModel(lambda row: P), [0], decoder, max_new_tokens=5, seed=0, alternatives=4)
    assert len(out.ranked) == 5
    for token, logp, score, ranked in zip(out.tokens, out.logps, out.scores, out.ranked, strict=True):
        assert dict(ranked.model)[token] == pytest.approx(logp)
        assert dict(ranked.drawn)[token] == pytest.approx(score)


def test_none_are_kept_unasked():
    assert generate(TableModel(lambda row: P), [0], Greedy(), max_new_tokens=5).ranked == ()


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="alternatives is 5, which is more than 4"):
        generate(TableModel(lambda row: P), [0], Greedy(), alternatives=5)
