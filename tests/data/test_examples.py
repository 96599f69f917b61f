from __future__ import annotations

import numpy as np
import torch

from unspool.data.batch import ragged_from_lists
from unspool.data.examples import SelectedExamples, Sequences

# BOS = 1, EOS = 2
TARGET = ragged_from_lists([[1, 5, 6, 2], [1, 7, 2], [1, 8, 9, 5, 2]])
SOURCE = ragged_from_lists([[1, 4, 2], [1, 6, 7, 8, 2], [1, 9, 2]])


def test_a_language_model_reads_bos_and_says_eos_by_hand() -> None:
    batch = Sequences(TARGET).batch(np.array([1, 0]))
    assert batch.inputs_NT.tolist() == [[1, 7, 0], [1, 5, 6]]
    assert batch.targets_NU.tolist() == [[7, 2, 0], [5, 6, 2]]
    assert batch.weights_NU.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.lengths_N.tolist() == [2, 3]
    assert batch.source_NS is batch.source_lengths_N is None
    assert batch.weight == 5
    assert (batch.inputs_NT.dtype, batch.weights_NU.dtype) == (torch.int64, torch.float32)


def test_an_encoder_reads_the_source_and_its_eos_by_hand() -> None:
    batch = Sequences(TARGET, SOURCE).batch(np.array([0, 1]))
    assert batch.source_NS is not None
    assert batch.source_lengths_N is not None
    assert batch.source_NS.tolist() == [[4, 2, 0, 0], [6, 7, 8, 2]]
    assert batch.source_lengths_N.tolist() == [2, 4]
    assert batch.inputs_NT.tolist() == [[1, 5, 6], [1, 7, 0]]


def test_sizes_count_positions() -> None:
    assert Sequences(TARGET).sizes_NK.tolist() == [[3], [2], [4]]
    assert Sequences(TARGET, SOURCE).sizes_NK.tolist() == [[2, 3], [4, 2], [2, 4]]


def test_a_cut_target_does_not_end_and_a_cut_source_does() -> None:
    cut = Sequences(TARGET, SOURCE, limit=3)
    assert cut.sizes_NK.tolist() == [[2, 3], [3, 2], [2, 3]]
    batch = cut.batch(np.array([2, 1]))
    assert batch.targets_NU.tolist() == [[8, 9, 5], [7, 2, 0]]
    assert batch.source_NS is not None
    assert batch.source_NS.tolist() == [[9, 2, 0], [6, 7, 2]]


def test_some_of_the_examples() -> None:
    some = SelectedExamples(Sequences(TARGET), np.array([2, 0]))
    assert (len(some), some.sizes_NK.tolist()) == (2, [[4], [3]])
    assert some.batch(np.array([0])).inputs_NT.tolist() == [[1, 8, 9, 5]]
