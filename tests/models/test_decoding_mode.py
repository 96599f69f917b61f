import pytest
import torch
from torch import nn

from unspool.models.sequence_model import eval_inference, inference_method


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))

    @inference_method
    def say(self, times, *, fail=False):
        """What it does."""
        if fail:
            raise ValueError("no")
        return [part.training for part in self.modules()] * times, torch.is_grad_enabled()


def test_inside_nothing_learns_and_behind_it_all_is_as_before():
    model = Model().train()
    model.inner[0].eval()
    with eval_inference(model):
        assert not any(part.training for part in model.modules())
        assert torch.is_inference_mode_enabled()
    assert [part.training for part in model.modules()] == [True, True, False, True]
    assert not torch.is_inference_mode_enabled()


def test_a_method_may_fail_or_call_another():
    model = Model().train()
    with eval_inference(model):
        assert model.say(1) == ([False] * 4, False)
        assert not model.training
    with pytest.raises(ValueError, match="no"):
        model.say(1, fail=True)
    assert all(part.training for part in model.modules())
    assert model.say.__doc__ == "What it does."


def test_a_part_that_alone_is_in_train_mode_is_left_there():
    model = Model().eval()
    model.inner[1].train()
    assert model.say(1)[0] == [False, False, False, True]
