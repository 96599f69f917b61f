import math

import pytest
import torch

from unspool.decode.ranking import Attended, Coverage
from unspool.interfaces import Step


def says(attention):
    return Step(torch.zeros(len(attention), 2), attention=torch.tensor(attention))


def test_by_hand():
    attended = Attended.begin(says([[0.5, 0.25, 0.25]])).plus(says([[0.9, 0.05, 0.05]]))
    # sums 1.4 → 1, 0.3, 0.3
    assert Coverage(0.5)(attended).item() == pytest.approx(0.5 * 2 * math.log(0.3), abs=1e-6)


def test_a_source_that_was_wholly_looked_at_costs_nothing():
    attended = Attended.begin(says([[0.5, 0.5]])).plus(says([[0.5, 0.5]])).plus(says([[0.9, 0.1]]))
    assert Coverage(1.0)(attended).item() == 0.0


def test_the_penalty_only_shrinks_as_more_is_looked_at():
    torch.manual_seed(0)
    attention_TNS = torch.rand(6, 4, 5).softmax(-1)
    attended = Attended.begin(Step(torch.zeros(4, 2), attention=attention_TNS[0]))
    before = Coverage()(attended)
    for attention_NS in attention_TNS[1:]:
        attended = attended.plus(Step(torch.zeros(4, 2), attention=attention_NS))
        after = Coverage()(attended)
        assert (after >= before).all()
        assert (after <= 0).all()
        before = after


def test_padding_of_a_shorter_source_does_not_count():
    alone = Attended.begin(says([[0.7, 0.3]])).plus(says([[0.6, 0.4]]))
    batch = Attended.begin(says([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]])).plus(
        says([[0.6, 0.4, 0.0], [0.3, 0.3, 0.4]])
    )
    assert Coverage()(batch)[0].item() == pytest.approx(Coverage()(alone)[0].item(), abs=1e-12)


def test_a_token_never_looked_at_costs_much_but_not_everything():
    attended = Attended.begin(says([[0.5, 0.5], [0.5, 0.5]]))
    attended = Attended(attended.sum_NS * torch.tensor([[1.0, 0.0], [1.0, 1.0]]), attended.real_NS)
    missed, seen = Coverage(1.0)(attended).tolist()
    assert math.isfinite(missed)
    assert missed < seen - 100


def test_rows_are_moved_with_their_hypotheses():
    attended = Attended.begin(says([[0.9, 0.1], [0.2, 0.8]]))
    moved = attended.select(torch.tensor([1, 1, 0]))
    assert moved.sum_NS[:, 0].tolist() == pytest.approx([0.2, 0.2, 0.9])


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match=r"Coverage needs Step.attention"):
        Attended.begin(Step(torch.zeros(1, 2)))
    with pytest.raises(ValueError, match=r"one of shape \(1, 2, 3\)"):
        Attended.begin(Step(torch.zeros(1, 2), attention=torch.zeros(1, 2, 3)))


def test_attention_over_something_that_grows_is_refused():
    with pytest.raises(ValueError, match="changed its shape"):
        Attended.begin(says([[0.5, 0.5]])).plus(says([[0.4, 0.3, 0.3]]))


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(beta):
    with pytest.raises(ValueError, match=r"Coverage\.beta"):
        Coverage(beta)
