from dataclasses import replace

import pytest
import torch
from torch import nn

import unspool as us
from unspool.models.lora import (
    LoRA,
    adapter_weights,
    add_adapters,
    find_adapters,
    merge_adapters,
    merged_weights,
)
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
from unspool.nn.linear import Linear

LM = TransformerConfig(vocab_size=11, width=16, layers=2, heads=2, inner_width=24, context=16)
TOKENS = torch.tensor([[1, 4, 2, 9, 3]])


def adapted(config=LM, lora=LoRA(rank=2, alpha=4.0), seed=0):  # noqa: B008
    torch.manual_seed(seed)
    model = config.build().eval()
    add_adapters(model, lora)
    for part in find_adapters(model).values():
        nn.init.normal_(part.lora_b)
    return model


def test_targets_are_the_ends_of_names():
    model = adapted(lora=LoRA(targets=("attention.qkv", "feed_forward.down")))
    assert set(find_adapters(model)) == {
        f"blocks.{layer}.{name}" for layer in (0, 1) for name in ("attention.qkv", "feed_forward.down")
    }
    pairs = TransformerSeq2SeqConfig(
        vocab_size=9, width=8, heads=2, inner_width=8, encoder_layers=1, decoder_layers=1, bos=1, eos=2
    ).build()
    add_adapters(pairs, LoRA(targets=("attention.out",)))
    # cross_attention.out ends otherwise
    assert set(find_adapters(pairs)) == {"blocks.0.attention.out", "encoder.blocks.0.attention.out"}


def test_only_adapters_learn():
    model = adapted()
    learning = {name for name, it in model.named_parameters() if it.requires_grad}
    assert learning == set(adapter_weights(model)) != set()


def test_it_begins_as_the_model_that_it_was():
    torch.manual_seed(0)
    model = LM.build().eval()
    before = model(TOKENS)
    add_adapters(model, LoRA(rank=3))
    assert torch.equal(model(TOKENS), before)


def test_merged_equals_unmerged_and_is_the_plain_model_again():
    model = adapted(lora=LoRA(rank=2, targets=("attention.qkv", "attention.out", "feed_forward.up")))
    unmerged, weights = model(TOKENS).detach(), merged_weights(model)
    merge_adapters(model)
    assert find_adapters(model) == {}
    torch.testing.assert_close(model(TOKENS), unmerged, atol=1e-5, rtol=0)
    assert all(torch.equal(weights[name], it) for name, it in model.state_dict().items())
    assert weights.keys() == LM.build().state_dict().keys()
    assert all(type(part) is Linear for name, part in model.named_modules() if name.endswith("qkv"))
    assert all(it.requires_grad for it in model.parameters())


def test_the_compiled_step_refuses_adapters_in_words_and_takes_the_merged_model():
    model = adapted()
    assert model.engine == "torch"
    greedy = us.generate(model, [1, 4], us.Greedy(), max_new_tokens=6).tokens
    model.engine = "compiled"
    with pytest.raises(
        ValueError, match=r"blocks\.0\.attention\.qkv is a LowRankLinear, which is not compiled"
    ):
        us.generate(model, [1, 4], us.Greedy(), max_new_tokens=2)
    merge_adapters(model)
    assert model.engine == "compiled"
    assert us.generate(model, [1, 4], us.Greedy(), max_new_tokens=6).tokens == greedy


def test_what_is_saved_is_merged_and_the_model_stays_as_it_is(tmp_path):
    model = adapted()
    us.save(model, tmp_path / "saved")
    again = us.load(tmp_path / "saved")
    torch.testing.assert_close(again(TOKENS), model(TOKENS), atol=1e-5, rtol=0)
    assert len(find_adapters(model)) == 4


def test_invalid_settings_are_refused():
    with pytest.raises(
        ValueError, match=r"no matrix of the TransformerLM is called 'q_proj': choose from atten"
    ):
        add_adapters(LM.build(), LoRA(targets=("q_proj",)))
    model = adapted()
    with pytest.raises(ValueError, match="already has adapters"):
        add_adapters(model, LoRA())
    stored = RNNConfig(vocab_size=9, width=8).build()
    with pytest.raises(ValueError, match="it has no linear layers"):
        add_adapters(stored, LoRA(targets=("weight",)))
    with pytest.raises(ValueError, match=r"rank=17 is more than .* a matrix of 48 × 16: choose 16 or less"):
        add_adapters(LM.build(), LoRA(rank=17))
    for wrong in ({"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(LoRA(), **wrong)
