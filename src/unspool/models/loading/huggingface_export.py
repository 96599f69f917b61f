"""Export models to Hugging Face: configuration and weights for transformers' classes, and complete folders.

    language models     LlamaForCausalLM, MistralForCausalLM (sliding window), GPT2LMHeadModel
    encoder–decoders    by positions: learned → BART, sinusoidal_halves → Marian, relative → T5

Fused matrices ([W^Q; W^K; W^V], [W_gate; W_up]) are split without changing any number. The target classes
have one kind of head, log p = log_softmax(W h), tied or not. Heads that equal such a softmax (softmax,
tempered, bilinear) are exported with their W; others are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from unspool.heads import SoftmaxHeadConfig
from unspool.heads.softmax import TiedSoftmax
from unspool.interfaces import TokenizerLike
from unspool.models.loading.causal_families import ACTIVATIONS, CAUSAL_FAMILIES
from unspool.models.loading.config_reader import ConfigReader
from unspool.models.loading.huggingface_folder import AnyConfig
from unspool.models.loading.safetensors_files import WEIGHTS, write_safetensors
from unspool.models.loading.seq2seq_families import SEQ2SEQ_FAMILIES, T5_ACTIVATIONS
from unspool.models.loading.weight_layout import SourcePart, WeightLayout, plan_tensors
from unspool.models.lora import merged_weights
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq
from unspool.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer, id_to_token


@dataclass(frozen=True)
class HuggingFaceExport:
    """Configuration and weights for a class of transformers."""

    family: str
    """`model_type`."""
    architecture: str
    """Class name."""
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    implied: frozenset[str] = frozenset()
    """Tensors that the class creates without a stored value."""


def export_to_huggingface(model: TransformerLM | TransformerSeq2Seq) -> HuggingFaceExport:
    """Export a model as the class of transformers with the same output. LoRA adapters are merged.

    The exported configuration is read back and compared, so that unsupported options are rejected.
    """
    if isinstance(model, TransformerSeq2Seq):
        return _export_seq2seq(model)
    if isinstance(model, TransformerLM):
        return _export_causal_lm(model)
    raise TypeError(
        f"cannot export a {type(model).__name__} to Hugging Face: expected a TransformerLM or a "
        "TransformerSeq2Seq"
    )


def _export_causal_lm(model: TransformerLM) -> HuggingFaceExport:
    """Mistral is Llama with sliding-window attention in every layer and without biases."""
    c, head = model.config, _head_weights(model)
    family = "gpt2" if c.norm == "layer" else "mistral" if c.windowed_layers else "llama"
    architecture = CAUSAL_ARCHITECTURES[family]
    if c.attention != "query_key":
        raise _cannot_export(
            f"attention={c.attention!r}", "restore the keys first (unspool.models.key_elimination.with_keys)"
        )
    settings = _gpt2_config(c) if family == "gpt2" else _llama_config(c)
    exported, layout = CAUSAL_FAMILIES[family](ConfigReader(f"{architecture}'s settings", settings))
    _check_config(c, exported, architecture)
    settings |= {"tie_word_embeddings": not head, **_special_tokens(model.tokenizer)}
    body = {name: part for name, part in _detached_weights(model).items() if not name.startswith("head.")}
    return HuggingFaceExport(family, architecture, settings, _split_weights(c, body, layout) | head)


def _export_seq2seq(model: TransformerSeq2Seq) -> HuggingFaceExport:
    c = model.config
    if c.positions not in SEQ2SEQ_ARCHITECTURES:
        known = ", ".join(SEQ2SEQ_ARCHITECTURES)
        raise _cannot_export(f"an encoder–decoder with positions={c.positions!r}", f"only {known} can")
    family, architecture = SEQ2SEQ_ARCHITECTURES[c.positions]
    head = SoftmaxHeadConfig() if c.head is None else c.head
    if not isinstance(head, SoftmaxHeadConfig) or head.tied not in (None, c.tied):
        raise _cannot_export(f"the head {head!r:.60}", "only a softmax tied as the model is can")
    if head.bias and family == "t5":
        raise _cannot_export("a bias of T5's head")
    settings = _t5_config(model) if family == "t5" else _marian_config(model)
    if family == "bart":
        settings["pad_token_id"] = 1  # in all BART vocabularies
    exported, layout = SEQ2SEQ_FAMILIES[family](ConfigReader(f"{architecture}'s settings", settings))
    _check_config(replace(c, embed_scale=model.scale), exported, architecture)
    ours = _detached_weights(model)
    weights = _split_weights(c, ours, layout)
    sides = ("encoder", "decoder") if family == "t5" else ("model.encoder", "model.decoder")
    copies = [f"{side}.embed_tokens.weight" for side in sides]
    if not c.tied and family != "t5":  # the class then has an embedding for each side
        weights |= dict.fromkeys(copies, ours["embed.weight"])
    positions = [f"{side}.embed_positions.weight" for side in sides]
    implied = frozenset([*copies, *positions, "final_logits_bias"])
    return HuggingFaceExport(family, architecture, settings, weights, implied)


CAUSAL_ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
}
"""`model_type` → class name."""
SEQ2SEQ_ARCHITECTURES = {
    "learned": ("bart", "BartForConditionalGeneration"),
    "sinusoidal_halves": ("marian", "MarianMTModel"),
    "relative": ("t5", "T5ForConditionalGeneration"),
}
"""Our positions → `model_type` and class name."""
_BART_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())} | {"silu": "swish"}
_T5_NAMES = {ours: theirs for theirs, ours in T5_ACTIVATIONS.items()}
UNCHECKED_FIELDS = ("bos", "dropout", "eos", "head", "tied")
"""Fields that are not compared: they are stored elsewhere, or do not affect the output."""


def _check_config(ours: AnyConfig, exported: AnyConfig, architecture: str) -> None:
    """Reject a model that differs from the configuration which the exported settings describe."""
    for field in fields(ours):
        value, other = getattr(ours, field.name), getattr(exported, field.name)
        if field.name in ("kv_heads", "head_width"):  # None is a default
            key = "key_value_heads" if field.name == "kv_heads" else "each_width"
            value, other = getattr(ours, key), getattr(exported, key)
        is_unlimited = field.name == "context" and value is None
        if field.name not in UNCHECKED_FIELDS and value != other and not is_unlimited:
            raise _cannot_export(f"{field.name}={value!r:.60} ({architecture} has {other!r:.60})")


def _cannot_export(what: str, remedy: str = 'save with format="unspool"') -> ValueError:
    return ValueError(f"{what} cannot be exported to Hugging Face: {remedy}")


def _head_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The output matrix under its Hugging Face name; empty if tied."""
    matrix_VD = model.output_matrix
    kind = type(model.head).__name__
    if matrix_VD is None:
        raise _cannot_export(f"a {kind} head", "use a softmax, tempered or bilinear head")
    if model.head.bias is not None:
        raise _cannot_export(f"a {kind} head with a bias", "use a head with bias = false")
    return {} if isinstance(model.head, TiedSoftmax) else {"lm_head.weight": matrix_VD.detach()}


def _detached_weights(model: TransformerLM | TransformerSeq2Seq) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in merged_weights(model).items()}


def _split_weights(c: AnyConfig, ours: Mapping[str, Tensor], layout: WeightLayout) -> dict[str, Tensor]:
    """The inverse of reading weights: split our tensors into those of a Hugging Face file."""
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    return {
        part.source: _stored_layout(part, values)
        for target in plan_tensors(c, shapes, layout)
        if target.parts
        for part, values in zip(target.parts, target.split(ours[target.name]), strict=True)
    }


def _stored_layout(part: SourcePart, values: Tensor) -> Tensor:
    """Our values in the layout of a Hugging Face file; unused rows are zeros."""
    if not part.is_identity:
        values = (values - part.offset) / part.scale
    if part.is_row:
        return values[None]
    if part.skipped_rows:
        return torch.cat([values.new_zeros(part.skipped_rows, *values.shape[1:]), values])
    return values.t() if part.transposed else values


def _special_tokens(tokenizer: TokenizerLike | None) -> dict[str, Any]:
    """BOS and EOS of the tokenizer; None without one, to override the defaults of transformers."""
    eos = [] if tokenizer is None else sorted(tokenizer.eos_ids)
    return {
        "bos_token_id": None if tokenizer is None else tokenizer.bos_id,
        "eos_token_id": (eos[0] if len(eos) == 1 else eos) if eos else None,
    }


def _llama_config(c: TransformerConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rotary_base}
    if c.rotary_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": c.rotary_scaling.factor,
            "low_freq_factor": c.rotary_scaling.low_freq_factor,
            "high_freq_factor": c.rotary_scaling.high_freq_factor,
            "original_max_position_embeddings": c.rotary_scaling.original_context,
        }
    own = (
        {"sliding_window": c.window} if c.windowed_layers else {"attention_bias": c.bias, "mlp_bias": c.bias}
    )
    return own | {
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
    }


def _gpt2_config(c: TransformerConfig) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab_size,
        "n_embd": c.width,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_inner": c.inner_width,
        "n_positions": c.context,
        "layer_norm_epsilon": c.norm_eps,
    }


def _seq2seq_special_tokens(model: TransformerSeq2Seq) -> dict[str, Any]:
    if len(model.ends.eos) > 1:
        raise _cannot_export(f"a model with several EOS tokens {sorted(model.ends.eos)}")
    tokenizer = model.tokenizer
    return {
        "bos_token_id": None if tokenizer is None else tokenizer.bos_id,
        "decoder_start_token_id": model.ends.bos,
        "eos_token_id": min(model.ends.eos),
        "pad_token_id": model.ends.bos,
        "tie_word_embeddings": model.config.tied,
        "is_encoder_decoder": True,
    }


def _marian_config(model: TransformerSeq2Seq) -> dict[str, Any]:
    c = model.config
    sides = {"attention_heads": c.heads, "ffn_dim": c.inner_width}
    # forced_eos_token_id is a rule of `generate`, not part of the model.
    return _seq2seq_special_tokens(model) | {
        "vocab_size": c.vocab_size,
        "d_model": c.width,
        "max_position_embeddings": c.context,
        "encoder_layers": c.encoder_layers,
        "decoder_layers": c.decoder_layers,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()},
        "activation_function": _BART_NAMES.get(c.activation, c.activation),
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
        "feed_forward_proj": _T5_NAMES.get(c.activation, c.activation),
    }


SPECIAL_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")
"""Keys of generation_config.json."""


def write_huggingface(model: Any, folder: Path) -> None:
    """Write the files of `save_pretrained` into a temporary folder, without the transformers package.

    config.json   model.safetensors   generation_config.json   tokenizer.json   tokenizer_config.json
    """
    export = export_to_huggingface(model)
    dtype = str(next(iter(export.weights.values())).dtype).removeprefix("torch.")
    settings = {
        "architectures": [export.architecture],
        "model_type": export.family,
        "dtype": dtype,
        **export.config,
    }
    _write_json(folder / "config.json", settings)
    tokens = {name: export.config.get(name) for name in SPECIAL_TOKEN_KEYS}
    tokens = {name: token for name, token in tokens.items() if token is not None}
    _write_json(folder / "generation_config.json", tokens)
    # Cloned, because a slice would be written with all of its storage.
    weights = {name: weight.cpu().clone().contiguous() for name, weight in export.weights.items()}
    write_safetensors(weights, folder / WEIGHTS, {"format": "pt"})
    if model.tokenizer is not None:
        tokenizer = check_tokenizer(model.tokenizer)
        _write_tokenizer(tokenizer, folder, model.context, writes_eos=model.is_encoder_decoder)


def check_tokenizer(tokenizer: TokenizerLike) -> Tokenizer:
    """Reject tokenizers that cannot be saved."""
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"only a Tokenizer can be saved with a model, not a {type(tokenizer).__name__}: "
            "set model.tokenizer to one"
        )
    return tokenizer


def _write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int | None, *, writes_eos: bool) -> None:
    if tokenizer.right_to_left:
        raise _cannot_export("a right-to-left tokenizer")
    eos_id = tokenizer.token_to_id(tokenizer.eos_token)
    first_eos_id = min(tokenizer.eos_ids, default=None)
    written_eos = (first_eos_id if eos_id is None else eos_id) if writes_eos else None
    backend = tokenizer.backend
    content = _with_post_processor(tokenizer, written_eos).to_str(pretty=False)
    (folder / TOKENIZER_FILE).write_text(content, encoding="utf-8")
    eos_token = tokenizer.eos_token
    if eos_id is None and first_eos_id is not None:
        eos_token = id_to_token(backend, first_eos_id) or ""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if tokenizer.bos_id is None else id_to_token(backend, tokenizer.bos_id),
        "eos_token": eos_token,
        "chat_template": tokenizer.chat_template,
        "add_bos_token": tokenizer.add_bos,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", {name: value for name, value in settings.items() if value})


def _with_post_processor(tokenizer: Tokenizer, eos: int | None) -> tokenizers.Tokenizer:
    """The backend with a post-processor that writes BOS (if add_bos) and EOS as in training."""
    backend = tokenizer.backend
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    end = [] if eos is None else [eos]
    if backend.encode("").ids == [*begin, *end]:
        return backend
    names = {token: str(id_to_token(backend, token)) for token in (*begin, *end)}
    first, last = ([names[token] for token in side] for side in (begin, end))
    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.post_processor = TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *(f"{name}:1" for name in first), "$B:1", *(f"{name}:1" for name in last)],
        special_tokens=[(name, token) for token, name in names.items()],
    )
    return copy


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
