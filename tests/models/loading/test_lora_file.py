import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from unspool.models.loading.lora_file import (
    ADAPTERS,
    fingerprint,
    load_adapters,
    lora_settings,
    save_adapters,
    write_adapters,
)
from unspool.models.lora import LoRA, adapter_weights, add_adapters, find_adapters, merge_adapters
from unspool.models.transformer_lm import TransformerConfig

LM = TransformerConfig(vocab_size=11, width=16, layers=2, heads=2, inner_width=24, context=16)
TOKENS = torch.tensor([[1, 4, 2, 9, 3]])


def built(seed=0):
    torch.manual_seed(seed)
    return LM.build().eval()


def adapted(seed=0):
    model = built(seed)
    add_adapters(model, LoRA(rank=2, alpha=3.0, dropout=0.25))
    for part in find_adapters(model).values():
        nn.init.normal_(part.lora_b)
    return model


def test_adapters_round_trip_bit_for_bit(tmp_path):
    model = adapted()
    save_adapters(model, tmp_path / "a.safetensors")
    other = built()
    load_adapters(other, tmp_path / "a.safetensors")
    assert torch.equal(other(TOKENS), model(TOKENS))
    loaded = lora_settings(other)
    assert (loaded.rank, loaded.alpha, loaded.dropout) == (2, 3.0, 0.25)
    assert all(torch.equal(it, adapter_weights(model)[name]) for name, it in adapter_weights(other).items())


def test_adapters_of_a_run_folder(tmp_path):
    model = adapted()
    save_adapters(model, tmp_path / ADAPTERS)
    other = built()
    load_adapters(other, tmp_path)
    assert len(find_adapters(other)) == 4


def test_fingerprint_ignores_adapters():
    model = adapted()
    assert fingerprint(model) == fingerprint(built())
    assert fingerprint(model) != fingerprint(built(1))
    merge_adapters(model)
    assert fingerprint(model) != fingerprint(built())


def test_adapters_of_another_model_are_rejected(tmp_path):
    save_adapters(adapted(), tmp_path / "a.safetensors")
    other = built(1)
    before = other(TOKENS)
    with pytest.raises(ValueError, match="trained on another model than this TransformerLM"):
        load_adapters(other, tmp_path / "a.safetensors")
    assert find_adapters(other) == {}
    assert torch.equal(other(TOKENS), before)


def test_missing_or_foreign_adapter_files_are_rejected(tmp_path):
    model = built()
    with pytest.raises(ValueError, match="has no adapters"):
        save_adapters(model, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="adapters not found"):
        load_adapters(model, tmp_path)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        load_adapters(model, tmp_path / "junk")
    save_file({"a": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="not an adapter file of save_adapters"):
        load_adapters(model, tmp_path / "b.safetensors")
    few = dict(list(adapter_weights(adapted()).items())[1:])
    write_adapters(tmp_path / "c.safetensors", LoRA(rank=2), fingerprint(model), few)
    with pytest.raises(ValueError, match=r"'blocks\.0\.attention\.qkv\.lora_a' has shape None"):
        load_adapters(model, tmp_path / "c.safetensors")
    assert find_adapters(model) == {}


@pytest.mark.parametrize(
    ("spoiled", "settings", "message"),
    [
        (
            {"blocks.0.attention.out.lora_a": torch.full((2, 16), torch.nan)},
            {},
            "holds NaN or infinity",
        ),
        ({"blocks.0.attention.out.lora_a": torch.ones(2, 16).int()}, {}, "holds NaN or infinity"),
        ({"blocks.0.attention.out.lora_a": torch.zeros(0, 16)}, {}, r"has shape \(0, 16\)"),
        ({}, {"lora": "[1e9"}, "the LoRA settings cannot be read"),
        ({}, {"lora": '{"rank": 1000000000}'}, "rank=1000000000 is more than 'blocks.0.attention.qkv' has"),
        ({}, {"lora": '{"rank": "2"}'}, "must be of type int"),
        ({}, {"base": ""}, "trained on another model"),
    ],
)
def test_damaged_adapter_files_are_rejected_and_the_model_is_unchanged(tmp_path, spoiled, settings, message):
    model = built()
    lora = '{"rank": 2, "alpha": 3.0}'
    metadata = {"format": "unspool adapters 1", "lora": lora, "base": fingerprint(model), **settings}
    save_file({**adapter_weights(adapted()), **spoiled}, tmp_path / "a.safetensors", metadata)
    before = model(TOKENS)
    with pytest.raises(ValueError, match=message) as caught:
        load_adapters(model, tmp_path / "a.safetensors")
    assert "\n" not in str(caught.value)
    assert find_adapters(model) == {}
    assert torch.equal(model(TOKENS), before)
