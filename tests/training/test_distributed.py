"""Without other processes: what several do together is in tests/end_to_end/test_distributed.py."""

import pytest
import torch
from torch import nn

from unspool.training.distributed import ProcessGroup, is_distributed, join_processes


def test_alone_nothing_is_shared(tiny):
    alone, tensor = ProcessGroup(), torch.ones(2)
    assert alone.sums([1.0, 2.0]) == [1.0, 2.0]
    assert alone.full_tensor(tensor) is tensor
    assert alone.shard_like(tensor, torch.zeros(2)) is tensor
    with alone.gradient_sync(nn.Linear(1, 1), False):
        alone.wait()


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not is_distributed()
    with join_processes("cpu", shard=False) as found:
        assert (found.rank, found.size) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_distributed()


def test_one_process_has_nobody_to_share_with(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="torchrun"), join_processes("cpu", shard=True):
        pass
