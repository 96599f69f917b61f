from dataclasses import replace

import pytest

from unspool.heads import SoftmaxHeadConfig
from unspool.models.loading.huggingface_folder import seq2seq_plan
from unspool.models.loading.seq2seq_families import BART_NAMES
from unspool.models.loading.weight_layout import WeightLayout
from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig

BART = TransformerSeq2SeqConfig(
    vocab_size=11,
    width=8,
    heads=2,
    inner_width=10,
    encoder_layers=1,
    decoder_layers=2,
    context=16,
    positions="learned",
    norm="layer",
    norm_place="post",
    bias=True,
    embed_norm=True,
    tied=False,
    head=SoftmaxHeadConfig(bias=True),
    bos=2,
    eos=2,
)
DIALECT = WeightLayout(BART_NAMES, skipped={"positions": 2})


def test_what_is_planned_is_what_the_model_has():
    planned = {target.name: target.shape for target in seq2seq_plan(BART, DIALECT)}
    assert planned == {name: tuple(it.shape) for name, it in BART.build().state_dict().items()}


def test_keys_stand_above_values_and_rows_in_front_are_left_out():
    found = {target.name: target for target in seq2seq_plan(BART, DIALECT)}
    kv = found["blocks.1.cross_attention.kv.weight"]
    assert kv.shape == (16, 8)
    assert [(piece.source, piece.shape) for piece in kv.pieces] == [
        ("model.decoder.layers.1.encoder_attn.k_proj.weight", (8, 8)),
        ("model.decoder.layers.1.encoder_attn.v_proj.weight", (8, 8)),
    ]
    (places,) = found["positions.weight"].pieces
    assert (places.shape, places.stored_shape) == ((16, 8), (18, 8))
    (bias,) = found["head.bias"].pieces
    assert (bias.source, bias.shape, bias.stored_shape) == ("final_logits_bias", (11,), (1, 11))


def test_a_configuration_that_lies_about_its_layers_is_not_planned_to_the_end():
    endless = seq2seq_plan(replace(BART, encoder_layers=2**31 - 1), DIALECT)
    assert next(endless).name == "embed.weight"


def test_a_dialect_without_a_name_is_a_mistake_here():
    with pytest.raises(KeyError, match=r"head\.bias"):
        list(seq2seq_plan(BART, WeightLayout({k: v for k, v in BART_NAMES.items() if k != "head.bias"})))
