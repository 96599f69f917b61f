"""Random streams: every text has a separate random stream.

    stream of a text = hash(seed, prompt tokens, sample)

The sample is the number of the text among the samples of this prompt with this seed, from 0. In a call with
`n` samples of each prompt, occurrence o of a prompt has the samples o·n … o·n + n − 1. Therefore

- different prompts are independent,
- a repeated prompt gives its next sample: ["Hi"] * 10 gives the texts of "Hi" with n=10,
- a prompt alone gives the text of its first occurrence in any batch, in any order, with any batch size,
- no two texts of a call share a stream, and a text is the same with a larger n.

The prompt is the user's: the source (and target prefix) for an encoder–decoder, the user's prompt for
combined models. Prompts with different seeds are counted by prompt and seed. Each request to a server or to
vLLM is a separate call.

The hash is BLAKE2b over little-endian 64-bit integers: the same on every machine and in every process.
"""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np
import torch

from unspool.arguments import int_or_none, items, shown


def stream_key(seed: int, prompt: Sequence[int], sample: int, prefix: Sequence[int] = ()) -> int:
    """256 bits that identify a random stream; `prefix` is the target prefix of an encoder–decoder."""
    text = str(seed).encode()
    numbers = len(text), len(prompt), len(prefix), sample, *prompt, *prefix
    packed = struct.pack(f"<{len(numbers)}q", *numbers) + text
    return int.from_bytes(blake2b(packed, digest_size=32, person=b"unspool stream").digest(), "little")


def uniform(key: int, tokens: Sequence[int]) -> float:
    """A number in [0, 1) for one position of a text, from its stream and the tokens before."""
    packed = key.to_bytes(32, "little") + struct.pack(f"<{len(tokens)}q", *tokens)
    digest = blake2b(packed, digest_size=8, person=b"unspool uniform").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def numpy_generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(key))


def torch_generator(key: int) -> torch.Generator:
    return torch.Generator().manual_seed(Random(key).getrandbits(63))


class SampleCounter:
    """Counts the samples of every prompt over one call, or over a corpus of several calls."""

    def __init__(self) -> None:
        self._drawn: Counter[Hashable] = Counter()

    def first_sample(self, prompt: Hashable, n: int = 1) -> int:
        """The number of the next sample of this prompt (seed included), and count n samples."""
        first = self._drawn[prompt]
        self._drawn[prompt] += n
        return first

    def first_samples(self, prompts: Iterable[Hashable], n: int = 1) -> tuple[int, ...]:
        return tuple(self.first_sample(prompt, n) for prompt in prompts)


def fresh_seed() -> int:
    return secrets.randbits(32)


def seeds_of(seed: Any, count: int) -> tuple[int, ...]:
    """A seed for each prompt, from one seed, from a list of seeds, or a fresh one for None."""
    if seed is None:
        return (fresh_seed(),) * count
    one = int_or_none(seed)
    if one is not None:
        return (one,) * count
    given = items("seed", seed, "a whole number, or a list of them, one for each prompt")
    if len(given) != count:
        raise ValueError(f"{len(given)} seeds for {count} prompts: give one seed, or one for each prompt")
    seeds = [int_or_none(each) for each in given]
    if None in seeds:
        raise TypeError(f"seed holds {shown(given[seeds.index(None)])}, but must hold whole numbers.")
    return tuple(each for each in seeds if each is not None)
