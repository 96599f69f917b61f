import pytest
import torch

from unspool.nn.rnn_attention import DotScore


def test_by_hand():
    score = DotScore(2, 2)
    memory = torch.tensor([[[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]])
    assert score(torch.tensor([[[2.0, 1.0]]]), score.keys(memory)).tolist() == [[[4.0, -1.0, 6.5]]]


def test_it_owns_no_weights():
    assert list(DotScore(3, 3).parameters()) == []


def test_unequal_widths_are_refused():
    with pytest.raises(ValueError, match="the query has 4 and what it looks at 8"):
        DotScore(4, 8)
