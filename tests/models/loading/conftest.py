"""Tiny models in the formats of transformers and llama.cpp."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from torch import Tensor

_LLAMA = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
_GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_SHAPES = {
    "Llama": _LLAMA,
    "Mistral": _LLAMA,
    "Qwen2": _LLAMA,
    "Qwen3": _LLAMA,
    "Granite": _LLAMA,
    "GPT2": _GPT2,
    "Olmo2": _LLAMA,
    "Phi3": _LLAMA | {"pad_token_id": 0},
    "SmolLM3": _LLAMA | {"num_hidden_layers": 5, "pad_token_id": 0},
    "Gemma2": _LLAMA | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3},
    "Gemma3Text": _LLAMA
    | {"num_hidden_layers": 7, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3},
}
_CLASSES = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}


@dataclass(frozen=True)
class HFModel:
    """A model of transformers, and the folder that it was saved to."""

    model: Any
    folder: Path

    @torch.no_grad()
    def assert_equals(self, ours: Callable[[Tensor], Tensor], atol: float = 1e-4) -> None:
        """Our log-probabilities equal transformers."""
        tokens_NT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
        expected = torch.log_softmax(self.model(tokens_NT).logits.float(), dim=-1)
        torch.testing.assert_close(ours(tokens_NT), expected, atol=atol, rtol=0)


@pytest.fixture(scope="session")
def transformers() -> Any:
    # Its import warns about things that are not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


@pytest.fixture
def make_hf_model(transformers: Any, tmp_path: Path) -> Callable[..., HFModel]:
    """A model of transformers with random weights, norms and biases included, saved to a folder."""

    def make(family: str, *, save: dict[str, Any] | None = None, **changes: Any) -> HFModel:
        config = getattr(transformers, f"{family}Config")(**{**_SHAPES[family], **changes})
        torch.manual_seed(7)
        model = getattr(transformers, _CLASSES.get(family, f"{family}ForCausalLM"))(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.2).add_(1.0 if parameter.dim() == 1 else 0.0)
        folder = tmp_path / "hf"
        model.eval().save_pretrained(folder, **(save or {}))
        return HFModel(model, folder)

    return make


# ── encoder–decoders ──────────────────────────────────────────────────────────────────────────────

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(4, 61))]
_SIDES = {
    "d_model": 32,
    **{
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in {"attention_heads": 4, "ffn_dim": 40}.items()
    },
    **{"encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 48},
}
_TRANSLATORS = {
    "Bart": ("BartForConditionalGeneration", _SIDES),
    "Marian": ("MarianMTModel", _SIDES | {"decoder_start_token_id": 1}),
    "T5": (
        "T5ForConditionalGeneration",
        {
            **{
                "d_model": 32,
                "d_kv": 6,
                "d_ff": 40,
                "num_layers": 3,
                "num_decoder_layers": 2,
                "num_heads": 4,
            },
            **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
            "decoder_start_token_id": 1,
        },
    ),
}
SOURCES = [" ".join(f"w{n}" for n in range(10, 40)), "w20", "w40 w41 w4 w60"]
"""Sources of different lengths."""


@dataclass(frozen=True)
class HFSeq2Seq:
    """An encoder–decoder of transformers with its tokenizer, and the folder that they were saved to."""

    model: Any
    tokenizer: Any
    folder: Path

    def load(self, engine: str, **options: Any) -> Any:
        """Load the folder with this package."""
        import unspool as us

        ours = us.load(self.folder, engine=engine, **options)
        assert ours.engine == engine
        return ours

    @torch.no_grad()
    def assert_equals(self, engine: str = "torch", atol: float = 1e-4, **options: Any) -> None:
        """Our log-probabilities equal transformers, in one pass and step by step."""
        ours = self.load(engine, **options)
        read = self.tokenizer(SOURCES, padding=True, return_tensors="pt")
        target_NT = torch.randint(4, 61, (3, 12), generator=torch.Generator().manual_seed(3))
        target_NT[:, 0] = self.model.config.decoder_start_token_id
        logits = self.model(**read, decoder_input_ids=target_NT).logits.float()
        want_NTV = torch.log_softmax(logits, dim=-1)
        lengths_N = read["attention_mask"].sum(1)
        if not options:
            found_NTV = ours(read["input_ids"], lengths_N, target_NT)
            torch.testing.assert_close(found_NTV, want_NTV, atol=atol, rtol=0)
        prompts = [row[:length].tolist() for row, length in zip(read["input_ids"], lengths_N, strict=True)]
        step, state = ours.start(prompts)
        for place in range(12):
            torch.testing.assert_close(step.logp_NV, want_NTV[:, place], atol=atol, rtol=0)
            if place < 11:
                step, state = ours.step(state, target_NT[:, place + 1])

    def assert_generates_the_same(self, engine: str, search: Any, **hf_options: Any) -> None:
        """Our decoder gives the texts and tokens of `generate`."""
        import unspool as us

        read = self.tokenizer(SOURCES, padding=True, return_tensors="pt")
        generate_options = {"max_new_tokens": 12, "do_sample": False, **hf_options}
        with torch.no_grad():
            written = self.model.generate(**read, **generate_options)[:, 1:].tolist()
        outs = us.generate(self.load(engine), SOURCES, search, max_new_tokens=12)
        pad = self.model.config.pad_token_id
        assert [[*out.tokens, *[pad] * (len(written[0]) - len(out.tokens))] for out in outs] == written
        want = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        assert [out.text for out in outs] == want


def _words(transformers: Any, family: str) -> Any:
    """A word tokenizer with the special tokens of the family."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({_marked(word): n for n, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    frame = "<s> $A </s>" if family == "Bart" else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(frame, None, [("<s>", 0), ("</s>", 2)])
    named = {"bos_token": "<s>"} if family == "Bart" else {}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", **named
    )


def _marked(word: str) -> str:
    return word if word.startswith("<") else f"▁{word}"


@pytest.fixture
def make_hf_seq2seq(transformers: Any, tmp_path: Path) -> Callable[..., HFSeq2Seq]:
    """An encoder–decoder of transformers with random weights and biases, saved with a tokenizer."""

    def make(family: str, **changes: Any) -> HFSeq2Seq:
        kind, sizes = _TRANSLATORS[family]
        ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "vocab_size": len(WORDS)}
        config = getattr(transformers, f"{family}Config")(**{**sizes, **ends, **changes})
        torch.manual_seed(7)
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.normal_(std=0.2).add_(1.0 if parameter.dim() == 1 else 0.0)
            if hasattr(model, "final_logits_bias"):
                model.final_logits_bias.normal_()
        model.generation_config.forced_eos_token_id = None
        folder, tokenizer = tmp_path / family, _words(transformers, family)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return HFSeq2Seq(model, tokenizer, folder)

    return make


# ── GGUF ──────────────────────────────────────────────────────────────────────────────────────────

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
NEWER = ("gemma2", "gemma3", "olmo2", "phi3", "smollm3")
# A byte-level vocabulary of eight tokens, for text made of a, b and c.
_TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<|endoftext|>", "a", "b", "c", "Ġ", "ab", "abc", "Ġa"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b", "ab c", "Ġ a"],
    "tokenizer.ggml.eos_token_id": 0,
}


@cache
def _names(architecture: str) -> Any:
    number = next(it for it, word in gguf.MODEL_ARCH_NAMES.items() if word == architecture)
    return gguf.get_tensor_name_map(number, 62)


def _gguf_name(name: str, architecture: str = "llama") -> str:
    """blk.3.attn_q.weight for model.layers.3.self_attn.q_proj.weight; newer families by `gguf`'s name map."""
    if architecture in NEWER:
        result = _names(architecture).get_name(name, try_suffixes=(".weight", ".bias"))
        assert result is not None
        return result
    module, _, kind = name.rpartition(".")
    for prefix in ("model.layers.", "transformer.h."):
        if module.startswith(prefix):
            layer, _, inner = module.removeprefix(prefix).partition(".")
            return f"blk.{layer}.{_GGUF_NAMES[inner]}.{kind}"
    return f"{_GGUF_NAMES[module]}.{kind}"


def _permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter reorders the rows of queries and keys."""
    halves = weights.reshape(heads, 2, len(weights) // heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def _pairs(config: Any, architecture: str) -> dict[str, Any]:
    gpt2 = architecture == "gpt2"
    metadata = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
    }
    if gpt2:
        metadata["feed_forward_length"] = 4 * config.hidden_size
        metadata["attention.layer_norm_epsilon"] = config.layer_norm_epsilon
    else:
        metadata["feed_forward_length"] = config.intermediate_size
        metadata["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
        metadata["attention.head_count_kv"] = config.num_key_value_heads
        rotary = config.rope_parameters.get("full_attention", config.rope_parameters)
        metadata["rope.freq_base"] = rotary["rope_theta"]
    return metadata


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a model as llama.cpp's converter does, with quantised matrices.

    The hf keeps what the quantisation leaves of its numbers. `changes` replace metadata; None removes it.
    """

    def write(
        hf: HFModel,
        architecture: str,
        *,
        kind: str = "F32",
        drop: tuple[str, ...] = (),
        extra: Mapping[str, Tensor] | None = None,
        tokenizer: bool = False,
        **changes: Any,
    ) -> Path:
        config = hf.model.config
        writer = gguf.GGUFWriter(tmp_path / "hf.gguf", architecture)
        pairs = {
            f"{architecture}.{key}": value for key, value in (_pairs(config, architecture) | changes).items()
        }
        adders = {int: "uint32", float: "float32", str: "string", list: "array"}
        for key, value in (pairs | (_TOKENIZER if tokenizer else {})).items():
            if value is not None:
                getattr(writer, f"add_{adders[type(value)]}")(key, value)
        for name, tensor in hf.model.state_dict().items():
            tied = config.tie_word_embeddings and name == "lm_head.weight"
            if tied or _gguf_name(name, architecture) in drop:
                continue
            stored = GGMLQuantizationType[kind if tensor.dim() == 2 else "F32"]
            with torch.no_grad():
                packed = gguf.quantize(tensor.numpy(), stored)
                tensor.copy_(torch.from_numpy(gguf.dequantize(packed, stored).copy()))
            if architecture == "gpt2" and tensor.dim() == 2 and ".h." in name:
                packed = gguf.quantize(np.ascontiguousarray(tensor.numpy().T), stored)
            if architecture.startswith("gemma") and "norm" in name:
                packed = packed + 1  # their norms multiply by 1 + w, the file holds what is multiplied by
            if architecture in ("llama", "granite", "smollm3") and ("q_proj" in name or "k_proj" in name):
                heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
                packed = _permuted(packed, heads)
            writer.add_tensor(_gguf_name(name, architecture), packed, raw_dtype=stored)
        for name, tensor in (extra or {}).items():
            writer.add_tensor(name, tensor.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / "hf.gguf"

    return write


@pytest.fixture
def raw_gguf():
    """Bytes of a GGUF file from parts: int → u32, (int,) → u64, str → string, bytes as they are."""

    def write(*parts):
        data = b""
        for part in parts:
            match part:
                case bytes():
                    data += part
                case str():
                    data += struct.pack("<Q", len(part.encode())) + part.encode()
                case (number,):
                    data += struct.pack("<Q", number)
                case number:
                    data += struct.pack("<I", number)
        return data

    return write
