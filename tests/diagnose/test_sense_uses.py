from dataclasses import replace

import pytest
import torch
from torch import nn

from unspool.data.batch import Batch
from unspool.diagnose.word_senses import sense_contexts
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities


class Reader(nn.Module, Abilities):
    """Its hidden vector is (3, 0) after token 0 and (0, 3) after any other; word 1 has a sense along each axis."""

    def __init__(self):
        super().__init__()
        self.head = Kerbs(2, torch.tensor([0, 1, 2, 1]), 3)
        self.head.senses_SD.data = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])

    @property
    def sense_head(self):
        return self.head

    def hidden_for(self, batch):
        first = (batch.inputs_NT == 0).float()
        return 3 * torch.stack([first, 1 - first], dim=-1)


def batch(rows, weights=None):
    tokens = torch.tensor(rows)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    weights = torch.ones(targets.shape) if weights is None else torch.tensor(weights)
    return Batch(inputs, torch.full((len(rows),), inputs.shape[1]), targets, weights)


def test_by_hand():
    """After 0 the scores of the two senses are 6 and 0; after 2 they are 0 and 3."""
    found = sense_contexts(Reader(), [batch([[0, 1, 2, 1]])], [1], examples=1)[1]
    first, second = torch.tensor([6.0, 0.0]).softmax(0), torch.tensor([0.0, 3.0]).softmax(0)
    assert found.count == 2
    assert found.shares == pytest.approx(((first + second) / 2).tolist(), rel=1e-5)
    assert [[place.before for place in of_sense] for of_sense in found.occurrences] == [[(0,)], [(0, 1, 2)]]
    assert found.occurrences[0][0].probability == pytest.approx(float(first[0]), rel=1e-5)


def test_only_weighted_targets_count_with_a_limited_context():
    found = sense_contexts(
        Reader(), [batch([[0, 0, 2, 1], [2, 1, 0, 1]], [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])], [1, 2], before=2
    )
    assert found[1].count == 2
    assert sorted(place.before for place in found[1].occurrences[0]) == [(0, 2), (1, 0)]
    assert found[2].count == 1
    assert found[2].shares == [1.0]


def test_shares_sum_to_one_and_are_empty_for_absent_words():
    rows = torch.randint(3, (5, 9), generator=torch.Generator().manual_seed(0)).tolist()
    found = sense_contexts(Reader(), [batch(rows), batch(rows)], [0, 1], examples=2)
    assert all(sum(it.shares) == pytest.approx(1.0) for it in found.values())
    assert found[1].count == 2 * sum(row[1:].count(1) for row in rows)
    assert [len(it) for it in found[1].occurrences] == [2, 2]
    nothing = sense_contexts(Reader(), [batch([[0, 0]])], [1])[1]
    assert (nothing.count, nothing.shares, nothing.occurrences) == (0, [], [[], []])


def test_the_source_of_a_row_is_kept_without_its_padding():
    with_sources = replace(
        batch([[0, 1], [2, 1]]),
        source_NS=torch.tensor([[7, 8, 9], [5, 0, 0]]),
        source_lengths_N=torch.tensor([3, 1]),
    )
    found = sense_contexts(Reader(), [with_sources], [1])[1].occurrences[0]
    assert [(place.before, place.source) for place in found] == [((0,), (7, 8, 9)), ((2,), (5,))]
    assert sense_contexts(Reader(), [batch([[0, 1]])], [1])[1].occurrences[0][0].source == ()
