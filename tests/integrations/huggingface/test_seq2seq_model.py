import pytest
import torch

import unspool as us
from unspool.integrations.huggingface.loading import from_huggingface

PAIRS = ["t5", "bart", "marian"]
SOURCES = [[5, 6, 7, 2], [9, 2], [11, 12, 2]]


@pytest.mark.parametrize("family", [*PAIRS, "nllb-moe", "fsmt"])
def test_greedy_text_equals_generate(families, family):
    expected = families[family]
    result = us.generate(from_huggingface(expected), SOURCES, us.Greedy(), max_new_tokens=12, stop_ids=[2])
    for source, out in zip(SOURCES, result, strict=True):
        want = expected.generate(torch.tensor([source]), max_new_tokens=12)
        assert list(out.tokens) == want[0, 1:].tolist()


@pytest.mark.parametrize("family", PAIRS)
def test_missing_eos_is_appended_to_a_source(families, family):
    model = from_huggingface(families[family])
    torch.testing.assert_close(model.start([[5, 6]])[0].logp_NV, model.start([[5, 6, 2]])[0].logp_NV)


@pytest.mark.parametrize("family", PAIRS)
@torch.no_grad()
def test_select_and_rewind_equal_one_forward_pass(families, family):
    model = from_huggingface(families[family])
    begin = model.ends.bos
    _, state = model.start([[5, 6, 7, 2], [9, 2]])
    _, state = model.step(state, torch.tensor([3, 4]))
    state = state.select(torch.tensor([1, 0, 1]))
    _, state = model.extend(state, torch.tensor([[8, 1], [9, 1], [10, 1]]))
    step, _ = model.step(model.rewind(state, 1), torch.tensor([6, 6, 6]))
    for row, (source, text) in enumerate(
        [([9, 2], [4, 8, 6]), ([5, 6, 7, 2], [3, 9, 6]), ([9, 2], [4, 10, 6])]
    ):
        want = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[begin, *text]]))[
            0, -1
        ]
        torch.testing.assert_close(step.logp_NV[row], want, atol=1e-4, rtol=1e-4)


def test_select_does_not_move_unchanged_sources(bart):
    model = from_huggingface(bart)
    _, state = model.start([[5, 6, 2]])
    _, state = model.step(state.select(torch.tensor([0, 0])), torch.tensor([3, 4]))
    before = state.cache.cross_attention_cache.layers[0].keys
    moved = state.select(torch.tensor([1, 0]))
    assert moved.cache.cross_attention_cache.layers[0].keys is before


def test_eager_attention_is_returned(bart, monkeypatch):
    model = from_huggingface(bart)
    assert model.start([[5, 6, 2]])[0].attention is None
    monkeypatch.setattr(bart.config, "_attn_implementation", "eager")
    step, _ = model.start([[5, 6, 2]])
    assert step.attention.shape == (1, 3)
    torch.testing.assert_close(step.attention.sum(-1), torch.ones(1))
    ranked = us.generate(model, [5, 6, 2], us.Beam(3, coverage=us.decode.Coverage(0.2)), max_new_tokens=4)
    assert ranked.total is not None


def test_a_source_longer_than_the_context_is_rejected(bart):
    with pytest.raises(ValueError, match=r"source of 70 tokens.*at most 64"):
        from_huggingface(bart).start([[5] * 69])
