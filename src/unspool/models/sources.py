"""BOS and EOS of texts and sources, and the encoded sources of an encoder–decoder during decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.interfaces import TokenizerLike


@dataclass(frozen=True)
class BoundaryTokens:
    """The BOS and EOS tokens of a text."""

    bos: int
    eos: frozenset[int]
    source_bos: bool = False
    """Keep a BOS at the start of a source."""

    @classmethod
    def of(
        cls, bos: int | None, eos: int | None, tokenizer: TokenizerLike | None, vocab_size: int
    ) -> BoundaryTokens:
        """From the settings of a model or its tokenizer; EOS replaces a missing BOS."""
        if eos is None and tokenizer is not None and tokenizer.eos_ids:
            ends = frozenset(tokenizer.eos_ids)
        elif eos is not None:
            ends = frozenset({eos})
        else:
            raise ValueError(
                "an encoder–decoder needs an EOS token: set eos (and bos), or build it with a tokenizer"
            )
        if bos is None and tokenizer is not None:
            bos = tokenizer.bos_id
        begin = min(ends) if bos is None else bos
        for token in (begin, *ends):
            if not 0 <= token < vocab_size:
                raise ValueError(f"token {token} is outside the vocabulary 0…{vocab_size - 1}")
        return cls(begin, ends)

    @classmethod
    def of_sources(
        cls, bos: int | None, eos: int | None, tokenizer: TokenizerLike | None, vocab_size: int | None
    ) -> BoundaryTokens | None:
        """The boundary tokens of a separate source vocabulary of `vocab_size` tokens, or None."""
        source_tokenizer = None if tokenizer is None else tokenizer.source
        if vocab_size is None:
            if source_tokenizer is not None:
                raise ValueError(
                    "the tokenizer has a separate source vocabulary, but the model has none: give "
                    f"source_vocab_size={source_tokenizer.vocab_size}"
                )
            return None
        if tokenizer is not None and source_tokenizer is None:
            raise ValueError(
                f"the model has a separate source vocabulary of {vocab_size} tokens, but its tokenizer has "
                "none: give one (tokenizer.source)"
            )
        return cls.of(bos, eos, source_tokenizer, vocab_size)

    def source(self, prompt: Sequence[int]) -> list[int]:
        """x₁ … xₙ EOS: removes a BOS (unless `source_bos`) and adds a missing EOS."""
        ids = list(prompt)
        if ids[:1] == [self.bos] and self.bos not in self.eos and not self.source_bos:
            del ids[0]
        return ids if ids and ids[-1] in self.eos else [*ids, min(self.eos)]

    def sources(self, prompts: Sequence[Sequence[int]], context: int | None) -> list[list[int]]:
        """`source` of every prompt; raises ValueError if one exceeds the context."""
        sources = [self.source(prompt) for prompt in prompts]
        for place, ids in enumerate(sources):
            if context is not None and len(ids) > context:
                raise ValueError(
                    f"prompt {place} is a source of {len(ids)} tokens, its end included, and this model "
                    f"reads sources of at most {context}: shorten it"
                )
        return sources


def batch_sources(batch: Batch) -> tuple[Tensor, Tensor]:
    """The sources of a batch, padded on the right, and their lengths."""
    if batch.source_NS is None or batch.source_lengths_N is None:
        raise ValueError("an encoder–decoder learns from pairs, and this batch has no source: give one")
    return batch.source_NS, batch.source_lengths_N


def pad_rows(
    rows: Sequence[Sequence[int]], device: torch.device, *, left: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows as one tensor (N, T), padded for torch models, and their lengths (N)."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    tokens = [
        [0] * (longest - len(row)) + [*row] if left else [*row] + [0] * (longest - len(row)) for row in rows
    ]
    return torch.tensor(tokens, device=device), torch.tensor(lengths, device=device)


@dataclass(frozen=True)
class EncodedSources:
    """Encoded sources, shared by the rows of a source (the hypotheses of a beam).

    If all sources have equally many adjacent rows, nothing is copied; otherwise each row gets a copy.
    """

    tensors: tuple[Any, ...]
    """Tensors whose first axis is all sources of the start."""
    source_N: tuple[int, ...]
    """The source of each row."""
    active: tuple[Any, ...]
    """Rows i·W … i·W + W − 1 attend to active[…][i]."""

    @classmethod
    def of(cls, *tensors: Tensor | None) -> EncodedSources:
        """One row per source; entries may be None, except the first."""
        sources = cls(tensors, (), tensors)
        return replace(sources, source_N=tuple(range(len(sources.tensors[0]))))

    def select(self, rows_M: Tensor) -> EncodedSources:
        source_M = tuple(self.source_N[row] for row in rows_M.tolist())
        if source_M == self.source_N:
            return self
        present = tuple(dict.fromkeys(source_M))
        rows_per_source = len(source_M) // len(present)
        if source_M != tuple(source for source in present for _ in range(rows_per_source)):
            present = source_M
        if present == tuple(range(len(self.tensors[0]))):
            return replace(self, source_N=source_M, active=self.tensors)
        indices = torch.tensor(present, device=self.tensors[0].device)
        active = tuple(None if part is None else part.index_select(0, indices) for part in self.tensors)
        return replace(self, source_N=source_M, active=active)
