"""A language model of ours as Hugging Face's classes have it: their settings, the weights by their names.

A fused matrix of ours ([W^Q; W^K; W^V], [W_gate; W_up]) is cut into theirs without a change of any number.
Theirs have one kind of head: log p = log_softmax(W h), with W the embedding or not. Every head of ours that
says so is exported (of a tempered or bilinear one, the W that it comes to); others are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from unspool.heads import SoftmaxHeadConfig
from unspool.heads.softmax import TiedSoftmax
from unspool.models.loading.config_reader import ConfigReader
from unspool.models.loading.huggingface_folder import SEQ2SEQ_FAMILIES, seq2seq_plan
from unspool.models.loading.safetensors_files import WEIGHTS, write_safetensors
from unspool.models.loading.weight_layout import SourcePart, WeightLayout
from unspool.models.lora import merged_weights
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq, TransformerSeq2SeqConfig
from unspool.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer, id_to_token

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True)
class HuggingFaceExport:
    """What one of their classes is filled with."""

    family: str
    """Their `model_type`."""
    architecture: str
    """The name of their class."""
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    implied: frozenset[str] = frozenset()
    """Tensors that their class makes of others, or of nothing."""


UNSUPPORTED_OPTIONS = (
    *("attention_cap", "embed_scale", "qk_norm", "rotary_factor", "rotary_width", "rotary_yarn"),
    *("unrotated_layers", "window_rotary_base"),
)
"""Options of other families."""


def export_causal_lm(model: TransformerLM) -> HuggingFaceExport:
    """The settings and weights of the equal `LlamaForCausalLM`, `MistralForCausalLM` or `GPT2LMHeadModel`.

    Mistral is Llama with sliding-window attention in every layer and without biases. Adapters are merged into
    their matrices.
    """
    if not isinstance(model, TransformerLM):
        raise TypeError(
            f"there is no Hugging Face class to fill from a {type(model).__name__}: only from a "
            "TransformerLM or a TransformerSeq2Seq"
        )
    config, head = model.config, _head_weights(model)
    shared = {"tie_word_embeddings": not head, **_special_tokens(model.tokenizer)}
    if config.attention != "query_key":
        raise ValueError(
            f"attention={config.attention!r} has no Hugging Face twin: give it keys first "
            "(unspool.models.key_elimination.with_keys)"
        )
    for name in UNSUPPORTED_OPTIONS:
        if getattr(config, name) != getattr(TransformerConfig, name):
            raise ValueError(
                f"{name}={getattr(config, name)!r:.60} has no place in the classes of Llama and GPT-2, "
                "which are the only twins here: save the model as ours"
            )
    if config.norm_place != "pre":
        raise ValueError(f"norm_place={config.norm_place!r} has no Hugging Face twin here: only 'pre' has")
    kind = (config.norm, config.positions, config.activation)
    is_llama = kind == ("rms", "rotary", "swiglu")
    if config.windowed_layers and not (is_llama and len(config.windowed_layers) == config.layers):
        raise ValueError(
            "only Mistral's class has a sliding window, and that in every layer of a Llama: "
            "save the model in this package's own format"
        )
    ours = {name: value.detach() for name, value in merged_weights(model).items()}
    if is_llama and config.windowed_layers:
        said = {**_mistral_config(config), **shared}
        return HuggingFaceExport("mistral", "MistralForCausalLM", said, _llama_weights(config, ours) | head)
    if is_llama:
        said = {**_llama_config(config), **shared}
        return HuggingFaceExport("llama", "LlamaForCausalLM", said, _llama_weights(config, ours) | head)
    if kind == ("layer", "learned", "gelu_tanh"):
        said = {**_gpt2_config(config), **shared}
        return HuggingFaceExport("gpt2", "GPT2LMHeadModel", said, _gpt2_weights(config, ours) | head)
    raise ValueError(
        f"a model with norm={config.norm!r}, positions={config.positions!r} and "
        f"activation={config.activation!r} is neither of the Llama nor of the GPT-2 family: "
        "there is no Hugging Face class to fill"
    )


def _head_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The output matrix under their name; nothing where it is the embedding."""
    matrix_VD = model.output_matrix
    kind = type(model.head).__name__
    if matrix_VD is None:
        raise ValueError(
            f"a {kind} head is no softmax of one matrix's products, the only head that Hugging Face's "
            "classes have: export a model with a softmax, tempered or bilinear head"
        )
    if model.head.bias is not None:
        raise ValueError(
            f"this {kind} head has a bias for every word, and Hugging Face's classes have no place for it: "
            "export a model whose head has bias = false"
        )
    return {} if isinstance(model.head, TiedSoftmax) else {"lm_head.weight": matrix_VD.detach()}


def _special_tokens(text: TokenizerLike | None) -> dict[str, Any]:
    """The tokens that begin and end a text. Without a text there are none: not those of their defaults."""
    eos = [] if text is None else sorted(text.eos_ids)
    return {
        "bos_token_id": None if text is None else text.bos_id,
        "eos_token_id": (eos[0] if len(eos) == 1 else eos) if eos else None,
    }


def _llama_config(c: TransformerConfig) -> dict[str, Any]:
    if c.qkv_bias:
        raise ValueError("qkv_bias without other biases is Qwen 2's: there is no Llama class to fill")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rotary_base}
    if c.rotary_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": c.rotary_scaling.factor,
            "low_freq_factor": c.rotary_scaling.low_freq_factor,
            "high_freq_factor": c.rotary_scaling.high_freq_factor,
            "original_max_position_embeddings": c.rotary_scaling.original_context,
        }
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.width,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.key_value_heads,
        "head_dim": c.each_width,
        "intermediate_size": c.inner_width,
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.norm_eps,
        "rope_parameters": rope,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
    }


def _mistral_config(c: TransformerConfig) -> dict[str, Any]:
    if c.bias:
        raise ValueError("Mistral's class has no biases: save the model in this package's own format")
    llama = _llama_config(c)
    del llama["attention_bias"], llama["mlp_bias"]
    return {**llama, "sliding_window": c.window}


def _llama_weights(c: TransformerConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.norm.weight": ours["norm.weight"]}
    heads = (c.heads * c.each_width, c.key_value_heads * c.each_width, c.key_value_heads * c.each_width)
    for i in range(c.layers):
        block, layer = f"blocks.{i}.", f"model.layers.{i}."
        theirs[layer + "input_layernorm.weight"] = ours[block + "attention_norm.weight"]
        theirs[layer + "post_attention_layernorm.weight"] = ours[block + "feed_forward_norm.weight"]
        for kind in ("weight", "bias") if c.bias else ("weight",):
            qkv = ours[f"{block}attention.qkv.{kind}"].split_with_sizes(heads)
            for name, part in zip(("q_proj", "k_proj", "v_proj"), qkv, strict=True):
                theirs[f"{layer}self_attn.{name}.{kind}"] = part
            theirs[f"{layer}self_attn.o_proj.{kind}"] = ours[f"{block}attention.out.{kind}"]
            gate, up = ours[f"{block}feed_forward.up.{kind}"].chunk(2)
            theirs[f"{layer}mlp.gate_proj.{kind}"], theirs[f"{layer}mlp.up_proj.{kind}"] = gate, up
            theirs[f"{layer}mlp.down_proj.{kind}"] = ours[f"{block}feed_forward.down.{kind}"]
    return theirs


def _gpt2_config(c: TransformerConfig) -> dict[str, Any]:
    if not c.bias or c.key_value_heads != c.heads or c.heads * c.each_width != c.width:
        raise ValueError("GPT-2 has biases, as many key–value heads as heads, and heads × head_width = width")
    return {
        "vocab_size": c.vocab_size,
        "n_embd": c.width,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_inner": c.inner_width,
        "n_positions": c.context,
        "layer_norm_epsilon": c.norm_eps,
    }


def _gpt2_weights(c: TransformerConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    theirs = {
        "transformer.wte.weight": ours["embed.weight"],
        "transformer.wpe.weight": ours["positions.weight"],
        "transformer.ln_f.weight": ours["norm.weight"],
        "transformer.ln_f.bias": ours["norm.bias"],
    }
    names = {
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward_norm": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for i in range(c.layers):
        for our_name, their_name in names.items():
            weight, bias = (ours[f"blocks.{i}.{our_name}.{kind}"] for kind in ("weight", "bias"))
            # GPT-2 stores its products as (inputs, outputs)
            theirs[f"transformer.h.{i}.{their_name}.weight"] = weight.t() if weight.dim() == 2 else weight
            theirs[f"transformer.h.{i}.{their_name}.bias"] = bias
    return theirs


# An encoder–decoder of ours as Hugging Face's classes have it: BART, Marian or T5, by its positions.
#
#     learned             BART
#     sinusoidal_halves   Marian
#     relative            T5
#
# The settings that are written are read again as a folder's are (`bart_families.py`, `t5_family.py`): where
# that gives another shape than the model's, their class has no place for it, and it is refused. Weights go
# the way back of `seq2seq_plan`: stacked ones are cut, factors are divided out.


ARCHITECTURES = {
    "learned": ("bart", "BartForConditionalGeneration"),
    "sinusoidal_halves": ("marian", "MarianMTModel"),
    "relative": ("t5", "T5ForConditionalGeneration"),
}
"""Our positions → their `model_type`, and the name of their class."""
UNCHECKED_FIELDS = ("bos", "dropout", "eos", "head", "tied")
"""Fields that settings need not give back: they are said elsewhere, or are no part of what is computed."""
_T5_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "geglu": "gated-gelu",
    "swiglu": "gated-silu",
}
_BART_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "swish"}


def export_to_huggingface(model: TransformerLM | TransformerSeq2Seq) -> HuggingFaceExport:
    """The settings and weights of the class of theirs that says the same as the model."""
    return export_seq2seq(model) if isinstance(model, TransformerSeq2Seq) else export_causal_lm(model)


def export_seq2seq(model: TransformerSeq2Seq) -> HuggingFaceExport:
    """The same of an encoder–decoder. Adapters are merged into their matrices."""
    c = model.config
    if c.positions not in ARCHITECTURES:
        raise ValueError(
            f"an encoder–decoder with positions={c.positions!r} has no Hugging Face twin: only those of "
            f"BART, Marian and T5 have ({', '.join(ARCHITECTURES)})"
        )
    family, architecture = ARCHITECTURES[c.positions]
    _check_head(c, family)
    said = CONFIGS[family](model)
    theirs, dialect = SEQ2SEQ_FAMILIES[family](
        ConfigReader(f"{architecture}'s settings", {"model_type": family, **said})
    )
    _check_shape(model, theirs, architecture)
    ours = {name: value.detach() for name, value in merged_weights(model).items()}
    weights = _seq2seq_weights(c, dialect, ours)
    copies = [f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    copies = copies if family == "t5" else [f"model.{name}" for name in copies]
    if not c.tied and family != "t5":  # their class then has an embedding for each side
        weights |= dict.fromkeys(copies, ours["embed.weight"])
    places = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    implied = frozenset([*copies, *places, "final_logits_bias"])
    return HuggingFaceExport(family, architecture, said, weights, implied)


def _seq2seq_weights(
    config: TransformerSeq2SeqConfig, dialect: WeightLayout, ours: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    theirs: dict[str, Tensor] = {}
    for target in seq2seq_plan(config, dialect):
        rows = [piece.shape[0] for piece in target.pieces]
        for piece, part in zip(target.pieces, torch.split(ours[target.name], rows), strict=True):
            if piece.source is not None:
                theirs[piece.source] = _stored_layout(piece, part)
    return theirs


def _stored_layout(piece: SourcePart, part: Tensor) -> Tensor:
    """A part of ours as a file of theirs has it; rows that nobody reads are zeros."""
    if not piece.as_it_is:
        part = (part - piece.plus) / piece.scale
    if piece.in_row:
        return part[None]
    return torch.cat([part.new_zeros(piece.skipped, *part.shape[1:]), part]) if piece.skipped else part


def _check_head(c: TransformerSeq2SeqConfig, family: str) -> None:
    head = SoftmaxHeadConfig() if c.head is None else c.head
    if not isinstance(head, SoftmaxHeadConfig) or head.tied not in (None, c.tied):
        raise ValueError(
            f"a head of {head!r:.60} is no softmax of one matrix's products, tied as the model is, the only "
            "kind that Hugging Face's classes have: save the model as ours"
        )
    if head.bias and family == "t5":
        raise ValueError("T5's class has no place for a bias of the head: save the model as ours")


def _check_shape(model: TransformerSeq2Seq, theirs: TransformerSeq2SeqConfig, architecture: str) -> None:
    ours = replace(model.config, embed_scale=model.scale, kv_heads=model.config.key_value_heads)
    ours = replace(ours, head_width=ours.each_width)
    theirs = replace(theirs, kv_heads=theirs.key_value_heads, head_width=theirs.each_width)
    for it in fields(ours):
        mine, other = getattr(ours, it.name), getattr(theirs, it.name)
        if it.name not in UNCHECKED_FIELDS and mine != other:
            raise ValueError(
                f"{it.name}={mine!r:.60} has no place in {architecture}, the Hugging Face class with such "
                f"positions, where it is {other!r:.60}: save the model as ours"
            )


def _seq2seq_special_tokens(model: TransformerSeq2Seq) -> dict[str, Any]:
    if len(model.ends.eos) > 1:
        raise ValueError(
            f"texts of this model end at any of {sorted(model.ends.eos)}, and one token is read from "
            "settings of theirs: save the model as ours"
        )
    text = model.tokenizer
    return {
        "bos_token_id": None if text is None else text.bos_id,
        "decoder_start_token_id": model.ends.bos,
        "eos_token_id": min(model.ends.eos),
        "pad_token_id": model.ends.bos,
        "tie_word_embeddings": model.config.tied,
        "is_encoder_decoder": True,
    }


def _known(names: Mapping[str, str], activation: str) -> str:
    """Their word for an activation; one that is no word of theirs is refused when the settings are read."""
    return names.get(activation, activation)


def _bart_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    return _marian_config(model) | {"pad_token_id": 1}  # always, in BART's vocabularies


def _marian_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    c = model.config
    sides = {"attention_heads": c.heads, "ffn_dim": c.inner_width}
    # What `generate` of theirs would force is no part of the model: None is written.
    return _seq2seq_special_tokens(model) | {
        "vocab_size": c.vocab_size,
        "d_model": c.width,
        "max_position_embeddings": c.context,
        "encoder_layers": c.encoder_layers,
        "decoder_layers": c.decoder_layers,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()},
        "activation_function": _known(_BART_ACTIVATIONS, c.activation),
        "scale_embedding": model.scale != 1.0,
        "forced_eos_token_id": None,
    }


def _t5_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    c = model.config
    return _seq2seq_special_tokens(model) | {
        "vocab_size": c.vocab_size,
        "d_model": c.width,
        "d_kv": c.each_width,
        "d_ff": c.inner_width,
        "num_layers": c.encoder_layers,
        "num_decoder_layers": c.decoder_layers,
        "num_heads": c.heads,
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": c.relative_distance,
        "layer_norm_epsilon": c.norm_eps,
        "feed_forward_proj": _known(_T5_ACTIVATIONS, c.activation),
    }


CONFIGS: dict[str, Callable[[TransformerSeq2Seq], dict[str, Any]]] = {
    "bart": _bart_config,
    "marian": _marian_config,
    "t5": _t5_config,
}
"""Their `model_type` → their settings."""


SPECIAL_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
"""Settings that their `generate` wants to have."""


def write_huggingface(model: Any, folder: Path) -> None:
    """The files of a Hugging Face folder, into a folder that nobody reads yet.

    A model as a folder of Hugging Face's: what their `save_pretrained` writes, without their package.

    config.json   model.safetensors   generation_config.json   tokenizer.json   tokenizer_config.json
    """
    twin = export_to_huggingface(model)
    dtype = str(next(iter(twin.weights.values())).dtype).removeprefix("torch.")
    said = {"architectures": [twin.architecture], "model_type": twin.family, "dtype": dtype, **twin.config}
    _write_json(folder / "config.json", said)
    ends = {name: twin.config.get(name) for name in SPECIAL_TOKEN_KEYS}
    _write_json(folder / "generation_config.json", {name: it for name, it in ends.items() if it is not None})
    # Each with memory of its own: slices of one matrix would be written as the whole of it.
    weights = {name: it.cpu().clone().contiguous() for name, it in twin.weights.items()}
    write_safetensors(weights, folder / WEIGHTS, {"format": "pt"})
    if model.tokenizer is not None:
        _write_tokenizer(model.tokenizer, folder, model.context, answers=model.is_encoder_decoder)


def _write_tokenizer(text: Any, folder: Path, context: int | None, *, answers: bool) -> None:
    if not isinstance(text, Tokenizer):
        raise TypeError(
            f"only a Tokenizer can be saved with a model, not a {type(text).__name__}: set model.text to one"
        )
    if text.right_to_left:
        raise ValueError(
            "the model says texts from right to left, and Hugging Face's tokenizers know no such order: "
            'save it in the format "unspool"'
        )
    eos = min(text.eos_ids, default=None)
    named = text.token_to_id(text.eos_token)
    written = _with_post_processor(text, named if answers and named is not None else eos if answers else None)
    (folder / TOKENIZER_FILE).write_text(written.to_str(pretty=False), encoding="utf-8")
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if text.bos_id is None else id_to_token(text.backend, text.bos_id),
        "eos_token": text.eos_token if named is not None or eos is None else id_to_token(text.backend, eos),
        "chat_template": text.chat_template,
        "add_bos_token": text.add_bos,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", {name: it for name, it in said.items() if it})


def _with_post_processor(text: Tokenizer, eos: int | None) -> tokenizers.Tokenizer:
    """The tokenizer with a post-processor that writes what the model was trained with.

    A language model's texts begin with BOS if the codec says so; an encoder–decoder's sources end with EOS.
    """
    begin = [text.bos_id] if text.add_bos and text.bos_id is not None else []
    end = [] if eos is None else [eos]
    if text.backend.encode("").ids == [*begin, *end]:
        return text.backend
    names = {token: str(id_to_token(text.backend, token)) for token in (*begin, *end)}
    first, last = ([names[token] for token in side] for side in (begin, end))
    made = tokenizers.Tokenizer.from_str(text.backend.to_str())
    made.post_processor = TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *(f"{name}:1" for name in first), "$B:1", *(f"{name}:1" for name in last)],
        special_tokens=[(name, token) for token, name in names.items()],
    )
    return made


def _write_json(path: Path, said: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
