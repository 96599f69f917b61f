"""The sources of an encoder–decoder while it decodes: read once, looked at by many rows.

Rows of one source (the hypotheses of a beam) share what was computed of it. As long as each source has
equally many rows, side by side, nothing is copied; otherwise each row gets its own copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True)
class Ends:
    """The tokens that begin and end a text."""

    bos: int
    eos: frozenset[int]
    source_bos: bool = False
    """A BOS in front of a source stays there."""

    @classmethod
    def of(cls, bos: int | None, eos: int | None, text: TokenizerLike | None, vocab_size: int) -> Ends:
        """From the settings of a model, or else from its text; EOS stands in for a BOS that is not there."""
        if eos is None and text is not None and text.eos_ids:
            ends = frozenset(text.eos_ids)
        elif eos is not None:
            ends = frozenset({eos})
        else:
            raise ValueError(
                "an encoder–decoder must know the token that ends a text: give eos (and bos), or build it "
                "with a text that has them"
            )
        if bos is None and text is not None:
            bos = text.bos_id
        begin = min(ends) if bos is None else bos
        for token in (begin, *ends):
            if not 0 <= token < vocab_size:
                raise ValueError(f"token {token} is outside the vocabulary 0…{vocab_size - 1}")
        return cls(begin, ends)

    @classmethod
    def of_sources(
        cls, bos: int | None, eos: int | None, text: TokenizerLike | None, vocab_size: int | None
    ) -> Ends | None:
        """Those of sources with a vocabulary of their own, of `vocab_size` tokens; None: they have not."""
        own = None if text is None else text.source
        if vocab_size is None:
            if own is not None:
                raise ValueError(
                    "the text has a vocabulary of its own for sources, but the model has not: give "
                    f"source_vocab_size={own.vocab_size}"
                )
            return None
        if text is not None and own is None:
            raise ValueError(
                f"the model has {vocab_size} tokens for sources alone, but its text has no vocabulary for "
                "these: give one (text.source)"
            )
        return cls.of(bos, eos, own, vocab_size)

    def source(self, prompt: Sequence[int]) -> list[int]:
        """x₁ … xₙ EOS: a BOS in front is taken off as a rule, and EOS written where it is missing."""
        ids = list(prompt)
        if ids[:1] == [self.bos] and self.bos not in self.eos and not self.source_bos:
            del ids[0]
        return ids if ids and ids[-1] in self.eos else [*ids, min(self.eos)]

    def sources(self, prompts: Sequence[Sequence[int]], context: int | None) -> list[list[int]]:
        """`source` of every prompt; one that is too long for the model's context is refused."""
        found = [self.source(prompt) for prompt in prompts]
        for place, ids in enumerate(found):
            if context is not None and len(ids) > context:
                raise ValueError(
                    f"prompt {place} is a source of {len(ids)} tokens, its end included, and this model "
                    f"reads sources of at most {context}: shorten it"
                )
        return found


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of any lengths as one tensor (N, S), flush left, and their lengths (N)."""
    longest = max(len(row) for row in rows)
    tokens = [[*row, *[0] * (longest - len(row))] for row in rows]
    lengths_N = torch.tensor([len(row) for row in rows], device=device)
    return torch.tensor(tokens, device=device), lengths_N


@dataclass(frozen=True)
class Sources:
    """Tensors whose first axis is the sources, and which of them each row looks at."""

    kept: tuple[Any, ...]
    """Of every source that there was at the start."""
    source_N: tuple[int, ...]
    """Which source each row looks at."""
    used: tuple[Any, ...]
    """Rows i·W … i·W + W − 1 look at used[…][i]."""

    @classmethod
    def of(cls, *kept: Tensor | None) -> Sources:
        """One row for each source; None is kept as None, but the first is a tensor."""
        sources = cls(kept, (), kept)
        return replace(sources, source_N=tuple(range(len(sources.kept[0]))))

    def select(self, rows_M: Tensor) -> Sources:
        """Reorder, repeat or drop rows."""
        source_M = tuple(self.source_N[row] for row in rows_M.tolist())
        if source_M == self.source_N:
            return self
        present = tuple(dict.fromkeys(source_M))
        each = len(source_M) // len(present)
        if source_M != tuple(source for source in present for _ in range(each)):
            present = source_M
        return replace(self, source_N=source_M, used=self._taken(present))

    def _taken(self, sources: tuple[int, ...]) -> tuple[Any, ...]:
        if sources == tuple(range(len(self.kept[0]))):
            return self.kept
        indices = torch.tensor(sources, device=self.kept[0].device)
        return tuple(None if it is None else it.index_select(0, indices) for it in self.kept)
