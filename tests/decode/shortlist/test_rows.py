import math

import numpy as np
import pytest
import torch

from unspool.decode.shortlist.rows import SHORTER, Shortlist

P = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.5, 0.0]])
INF = math.inf


def rows():
    return Shortlist.of(P.log())


def masked(*kept):
    mask = np.zeros((2, 4), dtype=bool)
    for row, columns in enumerate(kept):
        mask[row, columns] = True
    return mask


def wide(p_NV, vocabulary=400):
    """The same distributions, spread over a larger vocabulary at every hundredth id."""
    out = torch.zeros(len(p_NV), vocabulary)
    out[:, ::100] = p_NV
    return Shortlist.of(out.log())


def p_of(short):
    return short.weight_NW / short.total_N.float()[:, None]


def test_rows_are_known_up_to_a_constant():
    for constant in (0.0, 7.0, -100.0):
        found = Shortlist.of(P.log() + constant)
        torch.testing.assert_close(p_of(found), P)
        torch.testing.assert_close(found.whole(), P.log(), atol=1e-5, rtol=1e-5)
        assert (found.best_N / found.total_N).tolist() == pytest.approx([0.4, 0.5])
        assert found.scale_N.tolist() == pytest.approx([constant] * 2, abs=1e-5)
        assert found.peak_N.tolist() == pytest.approx([math.log(x) + constant for x in (0.4, 0.5)])


def test_entropy_of_rows_with_and_without_cut_tokens():
    first = -sum(p * math.log(p) for p in (0.1, 0.4, 0.2, 0.3))
    assert rows().entropy_N.tolist() == pytest.approx([first, 1.5 * math.log(2)])
    assert wide(P).entropy_N.tolist() == pytest.approx([first, 1.5 * math.log(2)])


def test_marked_rows_forget_what_was_cut():
    before = rows()
    after = before.keep(masked([0, 1, 3], [0, 1]))
    assert after.tokens is None
    torch.testing.assert_close(p_of(after), torch.tensor([[0.125, 0.5, 0, 0.375], [0.5, 0.5, 0, 0]]))
    assert (after.score_NW > -INF).tolist() == [[True, True, False, True], [True, True, False, False]]
    assert after.entropy_N[1].item() == pytest.approx(math.log(2))
    assert after.peak_N[1].item() == pytest.approx(math.log(0.25))
    torch.testing.assert_close(after.whole().exp(), p_of(after))
    again = after.keep(masked([1, 3], [0, 1]))
    torch.testing.assert_close(p_of(again), torch.tensor([[0, 4 / 7, 0, 3 / 7], [0.5, 0.5, 0, 0]]))
    torch.testing.assert_close(before.whole().exp(), P)


def test_rows_are_rewritten_when_they_become_much_shorter():
    before = wide(P)
    mask = before.score_NW.numpy() > -INF
    mask[1, 200] = False
    after = before.keep(mask)
    assert after.score_NW.shape == (2, 4)
    assert [t.tolist() for t in after.tokens] == [[0, 100, 200, 300], [0, 100]]
    torch.testing.assert_close(p_of(after), torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.5, 0.5, 0, 0]]))
    expected = torch.zeros(2, 400)
    expected[:, ::100] = p_of(after)
    torch.testing.assert_close(after.whole().exp(), expected)


def test_what_was_rewritten_can_be_rewritten_again():
    scores = torch.arange(400.0).log()[None]
    once = Shortlist.of(scores).keep((np.arange(400) % SHORTER == 3)[None])
    twice = once.keep((np.arange(100) % 10 == 9)[None])
    assert twice.tokens[0].tolist() == list(range(39, 400, 40))
    weights = torch.tensor([float(t) for t in twice.tokens[0]])
    torch.testing.assert_close(p_of(twice)[0], weights / weights.sum())


@pytest.mark.parametrize("spread", [False, True], ids=["marked", "rewritten"])
def test_draw_walks_the_vocabulary_in_order_and_tells_the_probability(spread):
    step = 100 if spread else 1
    full = wide(P) if spread else rows()
    mask = np.zeros(full.score_NW.shape, dtype=bool)
    mask[0, [0, step, 3 * step]] = mask[1, [0, step]] = True
    kept = full.keep(mask)
    assert (kept.tokens is not None) == spread
    for u, tokens, p in [
        ((0.1, 0.4), (0, 0), (0.125, 0.5)),
        ((0.13, 0.6), (step, step), (0.5, 0.5)),
        ((0.99, 0.999999), (3 * step, step), (0.375, 0.5)),
    ]:
        drawn, logp, sure = kept.draw(torch.tensor(u, dtype=torch.float64))
        assert drawn.tolist() == list(tokens)
        assert sure.all()
        assert logp.exp().tolist() == pytest.approx(p)


@pytest.mark.parametrize(("score", "match"), [(math.nan, "row 0.*NaN"), (-INF, "row 0.*no token left")])
def test_rows_that_cannot_be_drawn_from_are_refused(score, match):
    with pytest.raises(ValueError, match=match):
        Shortlist.of(torch.full((1, 5), score))
