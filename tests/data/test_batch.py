import torch

from unspool.data.batch import Batch


def test_its_weight_is_the_number_of_targets_that_count() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    batch = Batch(tokens, torch.tensor([3, 1]), tokens, torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))
    assert batch.weight == 4.0


def test_everything_in_it_moves_and_what_is_missing_stays_missing() -> None:
    tokens = torch.zeros(1, 2, dtype=torch.long)
    batch = Batch(tokens, torch.tensor([2]), tokens, torch.ones(1, 2), source_NS=tokens).to("meta")
    assert batch.inputs_NT.is_meta
    assert batch.source_NS is not None
    assert batch.source_NS.is_meta
    assert batch.source_lengths_N is None
