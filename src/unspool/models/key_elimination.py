"""A trained Transformer without its key matrices, and with key matrices again.

    without keys   W̃[k] = W^Q[k]ᵀ W^K[k] / √I            exact: no attention weight changes
    with keys      W̃[k] ≈ Σ_{r ≤ R} σ_r u_r v_rᵀ  (SVD)  exact for R = I, because rank W̃[k] ≤ I

McAllester's problems on attention, 5 (papers.bib: mcallester2020problems). For R < I the SVD is the nearest
matrix of rank R: Eckart & Young 1936 (papers.bib: eckart1936approximation). This works for self-attention
with positions that are added to the inputs; with rotary positions there is no single W̃. Cross-attention
keeps its queries and keys. Symbols: I head width, J width, R `rank`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.models.masked_models import MaskedLM, MaskedSeq2Seq
from unspool.models.transformer_lm import TransformerLM
from unspool.models.transformer_seq2seq import TransformerSeq2Seq
from unspool.nn.keyless_attention import check_no_rotary, join_query_key, pad_heads, split_query_key


@dataclass(frozen=True)
class AttentionCost:
    """The cost of the scores of one head. Values and output cost the same with and without keys."""

    parameters: int
    projections: int
    """Multiplications and additions of the projections of a token."""
    scores: int
    """Multiplications and additions of the scores of a token against T others."""


def costs(width: int, head_width: int, context: int) -> dict[str, AttentionCost]:
    """The costs of a head with queries and keys, and of a keyless one."""
    J, I, T = width, head_width, context  # noqa: E741
    return {
        "query_key": AttentionCost(2 * I * J, 4 * I * J, 2 * I * T),
        "keyless": AttentionCost(J * J, 2 * J * J, 2 * J * T),
    }


def without_keys(model: Any) -> Any:
    """The same model with one matrix W̃ for each head instead of queries and keys; log p does not change."""
    config = _check_transformer(model)
    check_no_rotary(config.positions == "rotary")
    if config.attention == "keyless":
        raise ValueError("this model is keyless already: give a model with attention='query_key'")
    H, K, I, J = config.heads, config.key_value_heads, config.each_width, config.width  # noqa: E741
    weights = dict(model.state_dict())
    for name in _layers(weights, "attention.qkv.weight"):
        q_HIJ, k_KIJ, v_KIJ = weights.pop(f"{name}qkv.weight").view(-1, I, J).split([H, K, K])
        bias = weights.pop(f"{name}qkv.bias", None)
        biases = None if bias is None else bias.view(-1, I).split([H, K, K])
        query_HJJ, query_HJ = join_query_key(
            q_HIJ, k_KIJ.repeat_interleave(H // K, dim=0), None if biases is None else biases[0]
        )
        weights[f"{name}query.weight"] = query_HJJ.transpose(1, 2).reshape(H * J, J)
        weights[f"{name}value.weight"] = v_KIJ.reshape(-1, J)
        if biases is not None and query_HJ is not None:
            weights |= {f"{name}query.bias": query_HJ.flatten(), f"{name}value.bias": biases[2].flatten()}
    return _build(replace(config, attention="keyless"), model, weights)


def with_keys(model: Any, rank: int | None = None) -> Any:
    """The same model with queries and keys instead of one matrix W̃ for each head.

    `rank` is the number of singular values of each W̃ to keep; None keeps as many as a head is wide. The new
    head width is the larger of the rank and the old one; the smaller is padded with zeros.
    """
    config = _check_transformer(model)
    if config.attention != "keyless":
        raise ValueError("this model is not keyless: call without_keys first")
    H, K, J = config.heads, config.key_value_heads, config.width
    rank = config.each_width if rank is None else rank
    if not 1 <= rank <= J:
        raise ValueError(f"rank={rank} must be from 1 to {J}, the width of the model")
    I, new_head_width = config.each_width, max(rank, config.each_width)  # noqa: E741
    weights = dict(model.state_dict())
    if (new_head_width, H) != (I, K) and any("cross_attention" in name for name in weights):
        raise ValueError(
            f"rank={rank} needs {H} heads of width {new_head_width}, cross-attention has {K} of width {I}: "
            f"choose a rank up to {I} and a model without kv_heads"
        )
    for name in _layers(weights, "attention.query.weight"):
        query_HJJ = weights.pop(f"{name}query.weight").view(H, J, J).transpose(1, 2)
        bias = weights.pop(f"{name}query.bias", None)
        q_HIJ, k_HIJ, q_HI = split_query_key(
            query_HJJ, None if bias is None else bias.view(H, J), rank, new_head_width
        )
        v_KIJ = pad_heads(weights.pop(f"{name}value.weight").view(K, I, J), new_head_width)
        v_HIJ = v_KIJ.repeat_interleave(H // K, dim=0)
        weights[f"{name}qkv.weight"] = torch.cat([q_HIJ, k_HIJ, v_HIJ]).reshape(-1, J)
        if q_HI is not None:
            v_KI1 = pad_heads(weights.pop(f"{name}value.bias").view(K, I, 1), new_head_width)
            v_HI = v_KI1.repeat_interleave(H // K, dim=0)[..., 0]
            weights[f"{name}qkv.bias"] = torch.cat([q_HI, torch.zeros_like(q_HI), v_HI]).flatten()
        out_HIJ = pad_heads(weights[f"{name}out.weight"].t().view(H, I, J), new_head_width)
        weights[f"{name}out.weight"] = out_HIJ.reshape(H * new_head_width, J).t().contiguous()
    changed = replace(config, attention="query_key", kv_heads=H, head_width=new_head_width)
    return _build(changed, model, weights)


def _check_transformer(model: Any) -> Any:
    if not isinstance(model, TransformerLM | MaskedLM | TransformerSeq2Seq | MaskedSeq2Seq):
        raise ValueError(
            f"{type(model).__name__} is not supported: give a Transformer language model or encoder–decoder"
        )
    return model.config


def _layers(weights: Mapping[str, Tensor], ending: str) -> list[str]:
    """The name prefixes of the weights of each attention layer."""
    last = ending.rpartition("attention.")[2]
    return [name.removesuffix(last) for name in weights if name.endswith(f".{ending}")]


def _build(config: Any, model: Any, weights: Mapping[str, Tensor]) -> Any:
    rebuilt = config.build(model.tokenizer).to(model.device)
    rebuilt.load_state_dict(weights)
    return rebuilt.train(model.training)
