"""One small random Marian model in everybody's format, with the same weights: python -m peers.marian FOLDER

    huggingface/   transformers' MarianMTModel
    ctranslate2/   its conversion, float32
    unspool/       a TransformerSeq2Seq: Marian's waves stand in the table of learnt positions, since their
                   order is another one than ours

The end of text has a bias that keeps it away, so that every engine writes as many tokens as it is asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import unspool as us
from unspool.heads import HEADS
from unspool.io import new_folder

if TYPE_CHECKING:
    from transformers import MarianMTModel

VOCABULARY, WIDTH, LAYERS, HEADS_EACH, INNER, POSITIONS = 8000, 256, 4, 8, 1024, 128
END, PAD = 0, VOCABULARY - 1
NEVER = -1e4


def random_marian() -> MarianMTModel:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS_EACH,
        decoder_attention_heads=HEADS_EACH,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=POSITIONS,
        activation_function="relu",
        scale_embedding=True,
        init_std=0.06,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        model.model.shared.weight[PAD] = 0  # CTranslate2 begins with a vector of zeros
        model.final_logits_bias[0, END] = NEVER
    return model


def as_ours(marian: MarianMTModel) -> us.models.TransformerSeq2Seq:
    config = us.models.TransformerSeq2SeqConfig(
        vocab_size=VOCABULARY,
        width=WIDTH,
        heads=HEADS_EACH,
        inner_width=INNER,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        norm="layer",
        norm_place="post",
        positions="learned",
        context=POSITIONS,
        activation="relu",
        bias=True,
        head=HEADS["softmax"](tied=True, bias=True),
        bos=PAD,
        eos=END,
    )
    model = config.build().eval()
    with torch.no_grad():
        model.embed.weight.copy_(marian.model.shared.weight)
        model.head.bias.copy_(marian.final_logits_bias[0])
        for ours, theirs in ((model.encoder, marian.model.encoder), (model, marian.model.decoder)):
            ours.positions.weight.copy_(theirs.embed_positions.weight)
            for block, layer in zip(ours.blocks, theirs.layers, strict=True):
                _copy_block(block, layer)
    return model


def _copy_block(block: nn.Module, layer: nn.Module) -> None:
    attention = layer.self_attn
    _copy(block.attention.qkv, attention.q_proj, attention.k_proj, attention.v_proj)
    _copy(block.attention.out, attention.out_proj)
    _copy(block.attention_norm, layer.self_attn_layer_norm)
    if hasattr(layer, "encoder_attn"):
        attention = layer.encoder_attn
        _copy(block.cross_attention.query, attention.q_proj)
        _copy(block.cross_attention.kv, attention.k_proj, attention.v_proj)
        _copy(block.cross_attention.out, attention.out_proj)
        _copy(block.cross_attention_norm, layer.encoder_attn_layer_norm)
    _copy(block.feed_forward.up, layer.fc1)
    _copy(block.feed_forward.down, layer.fc2)
    _copy(block.feed_forward_norm, layer.final_layer_norm)


def _copy(ours: nn.Module, *theirs: nn.Module) -> None:
    """Weights and biases, one above another."""
    for name in ("weight", "bias"):
        whole: Tensor = torch.cat([getattr(it, name) for it in theirs])
        getattr(ours, name).copy_(whole)


def read_bytes(model: us.models.TransformerSeq2Seq) -> int:
    """What every step reads: the decoder and the head, but for keys and values of the source."""
    decoder = sum(weight.numel() for weight in model.blocks.parameters())
    once = sum(block.cross_attention.kv.weight.numel() for block in model.blocks)
    return 4 * (decoder - once + model.output_matrix.numel())


def write_all(folder: Path) -> None:
    marian = random_marian()
    with new_folder(folder / "huggingface") as path:
        marian.save_pretrained(path)
    ours = as_ours(marian)
    us.save(ours, folder / "unspool")
    (folder / "bytes").write_text(str(read_bytes(ours)))
    from ctranslate2.converters.transformers import MarianMTLoader

    loader = MarianMTLoader()
    spec = loader.get_model_spec(marian)
    loader.set_vocabulary(spec, [str(number) for number in range(VOCABULARY - 1)])
    spec.config.eos_token = spec.config.decoder_start_token = str(END)
    spec.config.unk_token = "1"
    spec.validate()
    spec.optimize(quantization=None)
    with new_folder(folder / "ctranslate2") as path:
        spec.save(str(path))


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
