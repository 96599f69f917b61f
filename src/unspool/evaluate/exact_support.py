"""Support precision and recall: does a truncation keep the possible tokens, and only those?

    precision = |K ∩ S| / |K|          S = { x : p*(x) > 0 },  K = kept tokens
    recall    = |K ∩ S| / |S|
    by mass:    Σ_{K∩S} p̂ / Σ_K p̂   (share of the drawn tokens that is possible)
                Σ_K p*              (share of the true probability that is kept)

Exact for languages with a known next-token distribution p*. Stricter settings raise precision and lower
recall, so compare rules at settings that keep the same mass of p̂.

Finlayson et al. 2024, §3, for the question. papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.arguments import as_matrix, shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import ArgMax, BoundBasisAware
from unspool.decode.search.sampling import TokenDecoder, bind_rules, reshape
from unspool.decode.transforms.scores import alive
from unspool.interfaces import Decoder, Pick, Step, StepModel, Transform


@dataclass(frozen=True)
class Support:
    """Means over contexts."""

    precision: float
    recall: float
    mass_precision: float
    """Share of the drawn tokens that is possible."""
    mass_recall: float
    """Share of the true probability that is kept."""
    mass: float
    """Share of the model's probability that is kept."""
    size: float


def support(kept_CV: Tensor, p_CV: Tensor, true_CV: Tensor) -> Support:
    """Compute precision and recall of kept tokens (C, V), given the model's p̂ and the true p*."""
    for name, matrix in {"kept": kept_CV, "p̂": p_CV, "p*": true_CV}.items():
        as_matrix(name, matrix, "(contexts, vocabulary)")
    if kept_CV.dtype != torch.bool:
        raise TypeError(f"kept holds {kept_CV.dtype}, but must hold True or False")
    if not kept_CV.shape == p_CV.shape == true_CV.shape:
        shapes = ", ".join(str(tuple(each.shape)) for each in (kept_CV, p_CV, true_CV))
        raise ValueError(f"kept, p̂ and p* have shapes {shapes}, but must all be (contexts, vocabulary)")
    if not bool(kept_CV.any(dim=-1).all()):
        raise ValueError("some context keeps no token")
    p_CV, true_CV = p_CV.double(), true_CV.double()
    possible_CV = true_CV > 0
    both_C = (kept_CV & possible_CV).sum(dim=-1).double()
    kept_mass_C = (p_CV * kept_CV).sum(dim=-1)
    both_mass_C = (p_CV * (kept_CV & possible_CV)).sum(dim=-1)
    size_C = kept_CV.sum(dim=-1).double()
    means = (
        both_C / size_C,
        both_C / possible_CV.sum(dim=-1),
        both_mass_C / kept_mass_C,
        (true_CV * kept_CV).sum(dim=-1),
        kept_mass_C / p_CV.sum(dim=-1),
        size_C,
    )
    return Support(*(float(each.mean()) for each in means))


@dataclass(frozen=True)
class NextTokens:
    """The tokens that a decoder may draw next, with their exact probabilities, for one model and request.

        K = { x : f_k(… f_1(log p(· | prefix)) …)(x) > −∞, and the pick accepts x };   q(x) ∝ p_K(x) on K

    A Sample draws from its transformed scores, basis-aware sampling from the tokens among them that pass an
    exact test; Greedy has one token. Decoders that compare whole texts (beam search, MBR) do not have a
    next-token distribution.
    """

    transforms: tuple[Transform, ...]
    pick: Pick

    def __call__(
        self, step: Step, history: Sequence[Hypothesis], among: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the kept tokens (N, V), and their log-probabilities (N, V).

        Basis-aware sampling tests only the tokens in `among`, if given, and rejects the others.
        """
        scores_NV = reshape(step, history, self.transforms)
        kept_NV = alive(scores_NV)
        if isinstance(self.pick, ArgMax):
            best_N1 = scores_NV.argmax(dim=-1, keepdim=True)
            kept_NV = torch.zeros_like(kept_NV).scatter(1, best_N1, True)
        elif isinstance(self.pick, BoundBasisAware):
            tested_NV, taus = self.pick.tested(scores_NV, step)
            for row, tau in enumerate(taus):
                p_V = tested_NV[row].double().exp()
                test = self.pick.test.step(p_V)
                tokens = kept_NV[row].nonzero()[:, 0].tolist() if among is None else among
                accepted = [
                    token
                    for token in tokens
                    if kept_NV[row, token] and (p_V[token] >= tau or test.accepts(token, tau=tau))
                ]
                if not accepted and among is None:  # as in sampling, the most probable token is kept then
                    accepted = [int(scores_NV[row].argmax())]
                kept_NV[row] = False
                kept_NV[row, accepted] = True
        only_NV = scores_NV.masked_fill(~kept_NV, -torch.inf)
        return kept_NV, torch.log_softmax(only_NV, dim=-1)


def next_tokens(decoder: Decoder, model: StepModel, job: Job) -> NextTokens:
    """Bind a decoder to a model and request."""
    if not isinstance(decoder, TokenDecoder):
        raise TypeError(
            f"{shown(decoder)} does not choose token by token: give a Sample or a Greedy, or look at its "
            "whole texts"
        )
    return NextTokens(*bind_rules(decoder.transforms, decoder.pick, model, job))
