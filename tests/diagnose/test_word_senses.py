import pytest
import torch
from torch import nn

from unspool.diagnose.word_senses import senses
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities


class Model(nn.Module, Abilities):
    @property
    def sense_head(self):
        return self.head


def test_by_hand():
    """Word 1 has senses along x (length 2) and y; word 0 and word 2 have one each."""
    model = Model()
    model.head = Kerbs(2, torch.tensor([0, 1, 2, 1]), 3)
    model.head.senses_SD.data = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    model.head.theta_S.data = torch.tensor([0.0, 0.5, -1.0, 2.0])
    found = senses(model)
    assert found.by_number == {1: 2, 2: 1}
    first, second, _ = found.words
    assert (first.word, first.thetas, first.lengths) == (1, (0.5, 2.0), (2.0, 1.0))
    assert first.closest == first.farthest == 0.0
    assert (second.word, second.closest, second.farthest) == (0, None, None)


def test_words_whose_senses_are_far_apart_come_first_among_equals():
    model = Model()
    model.head = Kerbs(2, torch.tensor([0, 0, 1, 1]), 2)
    model.head.senses_SD.data = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.0], [-1.0, 0.0]])
    assert [it.word for it in senses(model).words] == [1, 0]
    assert senses(model).words[0].farthest == pytest.approx(-1.0)


def test_another_head_has_no_senses():
    with pytest.raises(TypeError, match="does not have a KerBS head"):
        senses(nn.Linear(2, 2))
