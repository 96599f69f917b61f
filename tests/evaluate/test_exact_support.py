import pytest
import torch

from unspool.evaluate.exact_support import support

P = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]])
TRUE = torch.tensor([[0.5, 0.0, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])


def test_by_hand():
    kept = torch.tensor([[True, True, True, False], [True, True, False, False]])
    found = support(kept, P, TRUE)
    assert found.precision == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found.recall == 1
    assert found.mass_precision == pytest.approx((0.6 / 0.9 + 0.7 / 0.8) / 2)
    assert found.mass_recall == 1
    assert found.mass == pytest.approx((0.9 + 0.8) / 2)
    assert found.size == 2.5


def test_rejected_tokens_lower_recall():
    kept = torch.tensor([[False, True, True, False], [True, False, False, False]])
    found = support(kept, P, TRUE)
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    assert found.mass_recall == pytest.approx((0.5 + 1) / 2)


def test_perfect_knowledge_is_perfect():
    found = support(TRUE > 0, P, TRUE)
    assert (found.precision, found.recall, found.mass_precision, found.mass_recall) == (1, 1, 1, 1)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="must all be"):
        support(P > 0, P, TRUE[:1])
    with pytest.raises(ValueError, match="keeps no token"):
        support(P > 0.5, P, TRUE)
