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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import Checked, as_matrix, as_number, function_of, number, shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.sampling import bind_transforms, reshape
from unspool.decode.transforms.scores import alive
from unspool.interfaces import Step, StepModel, Transform

HALVINGS = 60


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
    """Number of kept tokens."""


@dataclass(frozen=True)
class Dial(Checked):
    """A truncation rule with one setting, between its loosest and strictest values."""

    keeps: Callable[[float], Tensor]
    """Setting → (C, V), True for kept tokens."""
    loosest: float = number(advice="It bounds the setting.")
    strictest: float = number(advice="It bounds the setting.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not function_of(self.keeps, 1):
            raise TypeError(f"Dial.keeps is {shown(self.keeps)}, but must be a function: setting → (C, V)")


@dataclass(frozen=True)
class Matched:
    """A rule at the setting that keeps a given mass of p̂."""

    setting: float
    support: Support


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


def at_mass(dial: Dial, p_CV: Tensor, mass: float, *, close: float = 0.0) -> tuple[float, Tensor]:
    """Find, by bisection, the strictest setting that keeps at least `mass` of p̂, and the kept tokens.

    The search stops early if the kept mass exceeds `mass` by at most `close`.
    """
    if not isinstance(dial, Dial):
        raise TypeError(f"dial is {shown(dial)}, but must be a Dial")
    advice = "It is a share of the model's probability."
    mass = as_number("mass", mass, above=0, at_most=1, advice=advice)
    close = as_number("close", close, at_least=0, advice=advice)
    p_CV = as_matrix("p̂", p_CV, "(contexts, vocabulary)").double()
    if not bool((p_CV.isfinite() & (p_CV >= 0)).all()) or not bool(p_CV.any()):
        raise ValueError("p̂ must hold probabilities: finite, not negative, and not all 0")

    def kept_mass(kept_CV: Tensor) -> float:
        if not isinstance(kept_CV, Tensor) or kept_CV.shape != p_CV.shape:
            raise ValueError(f"Dial.keeps must return a tensor of the shape of p̂, {tuple(p_CV.shape)}")
        return float((p_CV * kept_CV).sum(dim=-1).mean() / p_CV.sum(dim=-1).mean()) + 1e-12

    loose, strict = dial.loosest, dial.strictest
    kept_CV = dial.keeps(loose)
    if kept_mass(kept_CV) < mass:
        raise ValueError(f"the rule keeps less than {mass:g} of the mass at its loosest setting, {loose:g}")
    if kept_mass(strict_CV := dial.keeps(strict)) >= mass:
        return strict, strict_CV
    for _ in range(HALVINGS):
        middle = (loose + strict) / 2
        if kept_mass(middle_CV := dial.keeps(middle)) >= mass:
            loose, kept_CV = middle, middle_CV
            if kept_mass(kept_CV) <= mass + close:
                break
        else:
            strict = middle
    return loose, kept_CV


def compare_support(
    dials: Mapping[str, Dial], p_CV: Tensor, true_CV: Tensor, mass: float, *, close: float = 0.0
) -> dict[str, Matched]:
    """Measure every rule at the setting that keeps the same mass of p̂."""
    if not isinstance(dials, Mapping):
        raise TypeError(f"dials is {shown(dials)}, but must be a dict from names to Dials")
    results = {}
    for name, dial in dials.items():
        setting, kept_CV = at_mass(dial, p_CV, mass, close=close)
        results[name] = Matched(setting, support(kept_CV, p_CV, true_CV))
    return results


@dataclass(frozen=True)
class NextTokens:
    """The tokens that a decoder may draw next, with their exact probabilities, for one model and request.

        K = { x : f_k(… f_1(log p(· | prefix)) …)(x) > −∞, and the pick accepts x };   q(x) ∝ p_K(x) on K

    Sample draws from its transformed scores, basis-aware sampling from the tokens among them that pass an
    exact test; Greedy has one token. Decoders that compare whole texts (beam search, MBR) do not have a
    next-token distribution.
    """

    transforms: tuple[Transform, ...]
    pick: Any
    bound: Any
    """The basis-aware pick, bound to the model's output matrix; None for other picks."""

    def __call__(self, step: Step, history: Sequence[Hypothesis]) -> tuple[Tensor, Tensor]:
        """Return the kept tokens (N, V), and their log-probabilities (N, V)."""
        scores_NV = reshape(step, history, self.transforms)
        kept_NV = alive(scores_NV)
        if isinstance(self.pick, ArgMax):
            best_N1 = scores_NV.argmax(dim=-1, keepdim=True)
            kept_NV = torch.zeros_like(kept_NV).scatter(1, best_N1, True)
        elif isinstance(self.pick, BasisAware):
            for row, kept_V in enumerate(kept_NV.clone()):
                tokens = kept_V.nonzero()[:, 0]
                kept_NV[row, tokens] = torch.tensor(self.accepted(step, scores_NV, tokens.tolist(), row))
                if not bool(kept_NV[row].any()):  # as in sampling, the most probable token is kept then
                    kept_NV[row, scores_NV[row].argmax()] = True
        only_NV = scores_NV.masked_fill(~kept_NV, -torch.inf)
        return kept_NV, torch.log_softmax(only_NV, dim=-1)

    def accepted(self, step: Step, scores_NV: Tensor, order: Sequence[int], row: int = 0) -> list[bool]:
        """Return for each token whether basis-aware sampling accepts it."""
        tested_NV = scores_NV if self.pick.on == "processed" else step.logp_NV
        tau = self.pick.tau(tested_NV)[row]
        p_V = tested_NV[row].double().exp()
        test = self.bound.test.step(p_V)
        return [bool(p_V[token] >= tau) or bool(test.accepts(token, tau=tau)) for token in order]


def next_tokens(decoder: Greedy | Sample, model: StepModel, job: Job) -> NextTokens:
    """Bind a decoder to a model and request."""
    if not isinstance(decoder, Greedy | Sample):
        raise TypeError(
            f"{shown(decoder)} does not have a next-token distribution: give Sample or Greedy, or measure "
            "its texts with text_truth"
        )
    pick = decoder.pick if isinstance(decoder, Sample) else ArgMax()
    transforms = bind_transforms(decoder.transforms, model, job)
    bound = pick.bind(model, transforms) if isinstance(pick, BasisAware) else None
    return NextTokens(transforms, pick, bound)
