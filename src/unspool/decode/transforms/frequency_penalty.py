"""Frequency penalty: subtract a constant for every time that a token occurred.

    score′(x) = score(x) − α · c(x),     c(x) = how often x occurred

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
class FrequencyPenalty(OccurrencePenalty):
    """Subtract the penalty times the number of occurrences."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        row_M, token_M, count_M = occurrences(history, self.prompt, scores_NV)
        return scores_NV.index_put((row_M, token_M), scores_NV[row_M, token_M] - self.penalty * count_M)
