import gc
import itertools

import pytest
import torch

from unspool.engine.memory import ARENA_BYTES, CACHE_LINE_BYTES, WeightMemory


def test_tensors_are_contiguous_and_aligned_to_cache_lines():
    memory = WeightMemory()
    first, second = memory.empty((3, 5)), memory.empty((7,), torch.uint8)
    assert first.dtype == torch.float32
    assert second.shape == (7,)
    assert first.data_ptr() % CACHE_LINE_BYTES == 0
    assert second.data_ptr() == first.data_ptr() + 64  # 60 bytes, and 4 to the next line
    first.fill_(1)
    second.fill_(2)
    assert first.sum() == 15
    assert second.sum() == 14


@pytest.mark.parametrize("sizes", [[ARENA_BYTES // 4 - 3] * 9, [1, ARENA_BYTES, 1, ARENA_BYTES // 3, 0, 1]])
def test_tensors_do_not_overlap(sizes):
    memory = WeightMemory()
    tensors = [memory.empty((size,), torch.uint8) for size in sizes]
    spans = sorted((it.data_ptr(), it.data_ptr() + it.numel()) for it in tensors if it.numel())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert [it.numel() for it in tensors] == sizes


def test_tensors_have_separate_storages_so_that_they_can_be_saved(tmp_path):
    from safetensors.torch import load_file, save_file

    memory = WeightMemory()
    tensors = {name: memory.empty((4, 4)).fill_(k) for k, name in enumerate("abc")}
    save_file(tensors, tmp_path / "x.safetensors")
    found = load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_single_number_is_a_tensor_too():
    assert WeightMemory().empty(()).fill_(2).item() == 2


def test_a_tensor_outlives_its_arena():
    memory = WeightMemory()
    kept = memory.empty((1000,)).fill_(3)
    for _ in range(5):
        memory.empty((ARENA_BYTES // 4,), torch.uint8).fill_(9)
    del memory
    gc.collect()
    assert kept.sum() == 3000
