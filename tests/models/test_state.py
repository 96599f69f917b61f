import torch

from unspool.models.transformer_lm import TransformerState
from unspool.nn.attention import KVCache


def make(pads, length, prompts=None):
    layer = KVCache(reserve=4)
    if length:
        layer.append(torch.zeros(len(pads), 1, length, 2), torch.zeros(len(pads), 1, length, 2))
    pad_N = torch.tensor(pads)
    prompt_N = torch.arange(len(pads)) if prompts is None else torch.tensor(prompts)
    return TransformerState([layer], pad_N, bool(pad_N.any()), prompt_N, length)


def test_positions_count_from_each_rows_own_beginning():
    assert make([0, 2], 0).positions(4).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    assert make([0, 2], 4).positions(1).tolist() == [[4], [2]]


def test_positions_are_told_once_where_all_rows_agree():
    assert make([0, 0, 0], 2).positions(3).tolist() == [[2, 3, 4]]


def test_no_mask_where_a_triangle_says_it_all():
    assert make([0, 0], 0).mask(5) is None
    assert make([0, 0], 5).mask(1) is None


def test_mask_hides_the_future_and_the_padding():
    mask = make([1], 0).mask(3)
    assert mask.tolist() == [[[[True, False, False], [False, True, False], [False, True, True]]]]
    assert make([0], 2).mask(2).tolist() == [[[[True, True, True, False], [True, True, True, True]]]]


def test_selecting_unpadded_rows_drops_the_mask():
    state = make([0, 2], 3).select(torch.tensor([0]))
    assert not state.padded
    assert state.mask(1) is None


def test_rows_that_swap_within_a_prompt_keep_its_columns():
    state = make([0, 0], 2, prompts=[0, 0])
    new = torch.tensor([5.0, 6.0]).view(2, 1, 1, 1).expand(2, 1, 1, 2)
    state.layers[0].append(new, new)
    state = state.select(torch.tensor([1, 1]))
    keys, _ = state.layers[0].append(torch.zeros(2, 1, 1, 2), torch.zeros(2, 1, 1, 2))
    assert keys[:, 0, :, 0].tolist() == [[0, 0, 6, 0], [0, 0, 6, 0]]


def test_truncate_forgets_columns():
    assert make([0], 5).truncate(2).length == 2
