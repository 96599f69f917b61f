"""GGUF files for a comparison: a file's weights in other types of numbers, or random ones of any size.

A matrix is written in blocks of 32 numbers, each with a scale of its own (ggml-common.h):

    Q8_0   x = d·q,        d float16, q int8                34 bytes a block
    Q4_0   x = d·(q − 8),  d float16, q of 4 bits           18 bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import dequantize, quantize

from unspool.io import new_file

Type = GGMLQuantizationType
FILE_TYPES = {
    Type.F32: LlamaFileType.ALL_F32,
    Type.F16: LlamaFileType.MOSTLY_F16,
    Type.Q8_0: LlamaFileType.MOSTLY_Q8_0,
    Type.Q4_0: LlamaFileType.MOSTLY_Q4_0,
    Type.Q4_1: LlamaFileType.MOSTLY_Q4_1,
}
SPREAD = {Type.Q8_0: 256 / 12**0.5, Type.Q4_0: 16 / 12**0.5}
"""Standard deviation of q, where all its values are equally frequent."""
BLOCK = 32


def requantise(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """Write the file once more with all its matrices in another type; names, order and metadata stay.

    The table of embeddings, which is the head as well, keeps 8 bits where the others get 4.
    """
    reader = GGUFReader(source)
    with new_file(target) as fresh:
        writer = GGUFWriter(fresh, reader.fields["general.architecture"].contents())
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name == "general.architecture":
                continue
            inner = field.types[-1] if len(field.types) > 1 else None
            value = int(FILE_TYPES[kind]) if field.name == "general.file_type" else field.contents()
            writer.add_key_value(field.name, value, field.types[0], sub_type=inner)
        for tensor in reader.tensors:
            shape = tuple(int(size) for size in reversed(tensor.shape))
            chosen = _type_of(tensor.name, shape, kind)
            numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
            writer.add_tensor(tensor.name, quantize(numbers, chosen), raw_dtype=chosen)
        _write(writer)


def _type_of(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> GGMLQuantizationType:
    if len(shape) < 2:
        return Type.F32
    if name in ("token_embd.weight", "output.weight") and kind in (Type.Q4_0, Type.Q4_1):
        return Type.Q8_0
    return kind


def _write(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@dataclass(frozen=True)
class LlamaShape:
    """The size of a random model; as it stands, about a billion weights."""

    layers: int = 22
    width: int = 2048
    heads: int = 32
    key_value_heads: int = 4
    inner_width: int = 5632
    vocab_size: int = 32_000
    context: int = 2048

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes, as torch writes these, in the order of the file."""
        shared = self.width // self.heads * self.key_value_heads
        yield "token_embd.weight", (self.vocab_size, self.width)
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight", (self.width,)
            yield f"blk.{layer}.attn_q.weight", (self.width, self.width)
            yield f"blk.{layer}.attn_k.weight", (shared, self.width)
            yield f"blk.{layer}.attn_v.weight", (shared, self.width)
            yield f"blk.{layer}.attn_output.weight", (self.width, self.width)
            yield f"blk.{layer}.ffn_norm.weight", (self.width,)
            yield f"blk.{layer}.ffn_gate.weight", (self.inner_width, self.width)
            yield f"blk.{layer}.ffn_up.weight", (self.inner_width, self.width)
            yield f"blk.{layer}.ffn_down.weight", (self.width, self.inner_width)
        yield "output_norm.weight", (self.width,)
        yield "output.weight", (self.vocab_size, self.width)


def write_random_llama(target: Path, shape: LlamaShape, kind: GGMLQuantizationType, seed: int = 0) -> None:
    """Random weights of a Llama, tensor by tensor: bytes are drawn, never numbers that would be packed."""
    dice = np.random.default_rng(seed)
    with new_file(target) as fresh:
        writer = GGUFWriter(fresh, "llama")
        _add_settings(writer, shape, kind)
        _add_vocabulary(writer, shape.vocab_size)
        kinds = {name: _type_of(name, size, kind) for name, size in shape.tensors()}
        for name, size in shape.tensors():
            blocks = int(np.prod(size)) // BLOCK
            count = blocks * _block_bytes(kinds[name]) if len(size) > 1 else size[0] * 4
            writer.add_tensor_info(name, list(size), np.dtype(np.float32), count, raw_dtype=kinds[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, size in shape.tensors():
            writer.write_tensor_data(_random_tensor(dice, size, kinds[name]))
        writer.close()


def _block_bytes(kind: GGMLQuantizationType) -> int:
    return {Type.Q8_0: 2 + BLOCK, Type.Q4_0: 2 + BLOCK // 2}[kind]


def _random_tensor(
    dice: np.random.Generator, size: tuple[int, ...], kind: GGMLQuantizationType
) -> np.ndarray:
    """A norm's ones, or a matrix that keeps the size of what it is given: deviation 1/√inputs."""
    if len(size) == 1:
        return np.ones(size, np.float32)
    packed = np.frombuffer(bytearray(dice.bytes(int(np.prod(size)) // BLOCK * _block_bytes(kind))), np.uint8)
    scale = np.float16(size[-1] ** -0.5 / SPREAD[kind])
    packed.reshape(-1, _block_bytes(kind))[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return packed


def _add_settings(writer: GGUFWriter, shape: LlamaShape, kind: GGMLQuantizationType) -> None:
    writer.add_name("random")
    writer.add_file_type(int(FILE_TYPES[kind]))
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner_width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_value_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab_size)


def _add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """SentencePiece with every byte and made-up words, so that no other file is needed."""
    special = ["<unk>", "<s>", "</s>"]
    single = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"▁word{number}" for number in range(size - len(special) - len(single))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * len(single) + [TokenType.NORMAL] * len(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *single, *words])
    writer.add_token_scores([-float(number) for number in range(size)])
    writer.add_token_types([int(kind) for kind in types])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
