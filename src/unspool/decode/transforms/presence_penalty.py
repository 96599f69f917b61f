"""Presence penalty: subtract a constant from every token that occurred already.

    score′(x) = score(x) − α   for x that occurred

OpenAI 2023 (API reference, "frequency and presence penalties").
papers.bib: openai2023penalties

α is `penalty`; 0 changes nothing, a negative one rewards repetition. `prompt` says whether tokens of the
prompt count; by default they do not, as in that API and in vLLM (llama.cpp counts them).
The same on logits and on log-probabilities: the penalty is additive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.path import Path
from unspool.decode.transforms.occurrences import OccurrencePenalty, occurrences
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class PresencePenalty(OccurrencePenalty):
    """Subtract the penalty from tokens that occurred."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, _ = occurrences(history, self.prompt, scores_NV)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] - self.penalty)
