"""Contrastive search: of the k most probable tokens, choose one whose hidden state differs from earlier ones.

    y_t = argmax_{v ∈ V⁽ᵏ⁾} { (1 − α) p(v | y_{<t}) − α max_{j<t} cos(h_v, h_j) }

Su et al. 2022, eq. 5 (papers.bib: su2022contrastive). h_j is the hidden state that the head reads at position
j, prompt included, and h_v the one after v: the k candidates of every row are rows of one model step, which
also gives the distribution after the chosen one. For an encoder–decoder only the target side is compared.

The values in braces are in the notes of a hypothesis, as `values`. α = 0 is greedy search. Of equal values
the smallest token id wins. A token of zero probability is never a candidate. Transforms such as a grammar
reshape p first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unspool.arguments import as_int, as_number, set_fields
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep, split_ended
from unspool.decode.score import read_steps
from unspool.decode.search.candidates import alternatives
from unspool.decode.search.sampling import bind_transforms, check_transforms, reshape
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class ContrastiveSearch:
    """ContrastiveSearch(4, 0.6): deterministic text with little repetition; transforms may follow."""

    k: int
    """Number of candidate tokens."""
    alpha: float
    """Weight of the similarity to earlier tokens."""
    transforms: tuple[Transform, ...]
    """Reshape the probabilities before the candidates are chosen."""

    def __init__(self, k: int = 4, alpha: float = 0.6, *transforms: Transform) -> None:
        advice = "0 is greedy search, 0.6 usual."
        alpha = as_number("ContrastiveSearch.alpha", alpha, at_least=0, at_most=1, advice=advice)
        advice = "1 is greedy search, 4 to 10 are usual."
        k = as_int("ContrastiveSearch.k", k, at_least=1, advice=advice)
        set_fields(self, k=k, alpha=alpha, transforms=transforms)
        check_transforms("ContrastiveSearch", transforms)

    def __repr__(self) -> str:
        if not self.transforms:
            return f"ContrastiveSearch(k={self.k}, alpha={self.alpha})"
        return f"ContrastiveSearch({self.k}, {self.alpha}, {', '.join(map(repr, self.transforms))})"

    streams: ClassVar[bool] = True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        transforms = bind_transforms(self.transforms, model, job)
        for hypotheses in job.batches(rows_each=self.k):
            yield from self._run(model, job, transforms, hypotheses)

    def _run(
        self, model: StepModel, job: Job, transforms: tuple[Transform, ...], live: Sequence[Hypothesis]
    ) -> Iterator[SearchStep]:
        requests = list(dict.fromkeys(hypothesis.request for hypothesis in live))
        seen, step, state = _begin(model, job, [job.prompts[request] for request in requests])
        if len(requests) < len(live):
            rows = [requests.index(hypothesis.request) for hypothesis in live]
            rows_N = torch.tensor(rows, device=step.logp_NV.device)
            seen, step, state = seen.select(rows_N), step.select(rows_N), state.select(rows_N)
        while live:
            scores_NV = reshape(step, live, transforms)
            top_NK = scores_NV.topk(min(self.k, model.vocab_size)).indices.sort(dim=-1).values
            rows_NK = torch.arange(len(live), device=top_NK.device).repeat_interleave(top_NK.shape[1])
            ahead, state = model.step(state.select(rows_NK), top_NK.flatten())
            similarity_NK = seen.similarity(_hidden(model, ahead).view(*top_NK.shape, -1))
            logp_NK, score_NK = step.logp_NV.gather(1, top_NK), scores_NV.gather(1, top_NK)
            value_NK = (1 - self.alpha) * score_NK.exp() - self.alpha * similarity_NK
            value_NK = value_NK.masked_fill(score_NK == -math.inf, -math.inf)
            peaks(value_NK)  # refuses NaN
            best_N = value_NK.argmax(dim=-1)
            chosen = [
                column.gather(1, best_N[:, None])[:, 0].tolist()
                for column in (top_NK, logp_NK, score_NK, value_NK)
            ]
            ranked = alternatives(step.logp_NV, scores_NV, job.alternatives)
            grown = []
            for hypothesis, others, token, logp, score, value in zip(live, ranked, *chosen, strict=True):
                values = (*hypothesis.notes.get("values", ()), value)
                noted = replace(hypothesis, notes={**hypothesis.notes, "values": values})
                grown.append(noted.extend(token, logp, score, job, others))
            stay = [row for row, hypothesis in enumerate(grown) if hypothesis.finish_reason is None]
            live = [grown[row] for row in stay]
            yield split_ended(grown)
            if live:
                stay_M = torch.tensor(stay, device=best_N.device)
                rows_M = stay_M * top_NK.shape[1] + best_N[stay_M]
                step, state = ahead.select(rows_M), state.select(rows_M)
                seen = seen.select(stay_M).append(_hidden(model, step))


@dataclass(frozen=True)
class SeenVectors:
    """The normalised hidden states of every row so far, left-padded."""

    unit_NTD: Tensor
    real_NT: Tensor
    """False at padding."""

    @staticmethod
    def of(hidden: Sequence[Tensor]) -> SeenVectors:
        """The states (T, D) of each row."""
        unit = [F.normalize(states_TD, dim=-1) for states_TD in hidden]
        real = [torch.ones_like(states_TD[:, 0], dtype=torch.bool) for states_TD in hidden]
        padded = [pad_sequence(rows, batch_first=True, padding_side="left") for rows in (unit, real)]
        return SeenVectors(*padded)

    def similarity(self, hidden_NKD: Tensor) -> Tensor:
        """(N, K): the largest cosine of each candidate with an earlier state of its row."""
        cosine_NKT = F.normalize(hidden_NKD, dim=-1) @ self.unit_NTD.transpose(1, 2)
        return cosine_NKT.masked_fill(~self.real_NT[:, None], -math.inf).amax(dim=-1)

    def select(self, rows_M: Tensor) -> SeenVectors:
        return SeenVectors(self.unit_NTD[rows_M], self.real_NT[rows_M])

    def append(self, hidden_ND: Tensor) -> SeenVectors:
        unit_N1D = F.normalize(hidden_ND, dim=-1)[:, None]
        real_N1 = torch.ones_like(self.real_NT[:, :1])
        return SeenVectors(
            torch.cat((self.unit_NTD, unit_N1D), dim=1), torch.cat((self.real_NT, real_N1), dim=1)
        )


def _begin(model: StepModel, job: Job, prompts: Sequence[Sequence[int]]) -> tuple[SeenVectors, Step, Any]:
    if model.prompt_reading is not None and not job.is_encoder_decoder:
        hidden_MD, step, state = model.prompt_reading.read_all(prompts)
        return SeenVectors.of(torch.split(hidden_MD, [len(prompt) for prompt in prompts])), step, state
    step, state = model.start(prompts)
    hidden_ND = _hidden(model, step)
    seen = torch.split(hidden_ND, 1) if job.is_encoder_decoder else _read_token_by_token(model, prompts)
    return SeenVectors.of(seen), step, state


def _read_token_by_token(model: StepModel, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    """The hidden states (T, D) of each prompt, from a model without `prompt_reading`."""
    hidden: list[list[Tensor]] = [[] for _ in prompts]
    first, rest = [prompt[:1] for prompt in prompts], [prompt[1:] for prompt in prompts]
    for live, step in read_steps(model, first, rest):
        for row, vector_D in zip(live, _hidden(model, step), strict=True):
            hidden[row].append(vector_D)
    return [torch.stack(vectors) for vectors in hidden]


def _hidden(model: StepModel, step: Step) -> Tensor:
    if step.hidden_ND is None:
        raise TypeError(
            f"contrastive search needs hidden states, which a {type(model).__name__} does not return: "
            "use a model such as a TransformerLM, or another decoder"
        )
    return step.hidden_ND
