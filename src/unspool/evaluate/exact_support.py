"""Support precision and recall: does a truncation keep what is truly possible, and only that?

    precision = |K ∩ S| / |K|          S = { x : p*(x) > 0 },  K = what is kept
    recall    = |K ∩ S| / |S|
    by mass:    Σ_{K∩S} p̂ / Σ_K p̂   (of what is drawn, how much is possible)
                Σ_K p*              (of the truth, how much is left)

Exact on a language whose true next-token distribution p* is known. A rule that keeps less is more precise and
recalls less, so that rules compare at settings that keep the same mass of p̂.

The question is Finlayson et al. 2024's, §3. papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import as_matrix, as_number, check_number, function_of, shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.sampling import bind_transforms, reshape
from unspool.decode.transforms.scores import alive
from unspool.interfaces import Step, StepModel, Transform

HALVINGS = 60


@dataclass(frozen=True)
class Support:
    """The means over contexts."""

    precision: float
    recall: float
    mass_precision: float
    """Of the tokens drawn, the share that is possible."""
    mass_recall: float
    """Of the tokens that would truly occur, the share that can still be drawn."""
    mass: float
    """Of the model's probability, the share that is kept."""
    size: float
    """Tokens kept."""


@dataclass(frozen=True)
class Dial:
    """A rule with one setting, from the one that keeps most to the one that keeps least."""

    keeps: Callable[[float], Tensor]
    """Setting → (C, V), true where a token is kept."""
    loosest: float
    strictest: float

    def __post_init__(self) -> None:
        if not function_of(self.keeps, 1):
            raise TypeError(
                f"Dial.keeps is {shown(self.keeps)}, but must be a function: setting → (contexts, "
                "vocabulary), true where a token is kept."
            )
        for end in ("loosest", "strictest"):
            check_number(self, end, advice="The rule is asked at settings from the loosest to the strictest.")

    def at(self, setting: float, shape: torch.Size) -> Tensor:
        """What is kept at a setting, of contexts and a vocabulary of this shape."""
        kept_CV = self.keeps(setting)
        if not isinstance(kept_CV, Tensor) or kept_CV.shape != shape:
            found = tuple(kept_CV.shape) if isinstance(kept_CV, Tensor) else shown(kept_CV)
            raise ValueError(
                f"the dial keeps {found}, but p̂ has shape {tuple(shape)}: it must say of each of its tokens "
                "whether it is kept."
            )
        return kept_CV


@dataclass(frozen=True)
class Matched:
    """A rule at the setting that keeps a given mass."""

    setting: float
    support: Support


def support(kept_CV: Tensor, p_CV: Tensor, true_CV: Tensor) -> Support:
    """Measure what is kept, (C, V), against the model's p̂ and the true p*."""
    for name, matrix in {"kept": kept_CV, "p̂": p_CV, "p*": true_CV}.items():
        as_matrix(name, matrix, "(contexts, vocabulary)")
    if kept_CV.dtype != torch.bool:
        raise TypeError(f"kept holds {kept_CV.dtype}, but must say True or False of every token.")
    if not kept_CV.shape == p_CV.shape == true_CV.shape:
        shapes = ", ".join(str(tuple(each.shape)) for each in (kept_CV, p_CV, true_CV))
        raise ValueError(f"kept, p̂ and p* have shapes {shapes}, but must all be (contexts, vocabulary).")
    if not bool(kept_CV.any(dim=-1).all()):
        raise ValueError("a context keeps no token at all, and nothing can be drawn from it.")
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
    """The strictest setting that keeps at least `mass` of p̂ on average, and what it keeps.

    A rule that takes long need not be asked to the last digit: keeping `close` more is near enough.
    """
    if not isinstance(dial, Dial):
        raise TypeError(f"the dial is {shown(dial)}, but must be a Dial: a rule and its two ends.")
    advice = "It is a share of the model's probability."
    mass = as_number("mass", mass, above=0, at_most=1, advice=advice)
    close = as_number("close", close, at_least=0, advice=advice)
    p_CV = as_matrix("p̂", p_CV, "(contexts, vocabulary)").double()
    if not bool((p_CV.isfinite() & (p_CV >= 0)).all()) or not bool(p_CV.any()):
        raise ValueError("p̂ holds NaN, negative or infinite entries, or none above 0: give probabilities.")

    def left(kept_CV: Tensor) -> float:
        return float((p_CV * kept_CV).sum(dim=-1).mean() / p_CV.sum(dim=-1).mean()) + 1e-12

    good, bad = dial.loosest, dial.strictest
    kept_CV = dial.at(good, p_CV.shape)
    if left(kept_CV) < mass:
        raise ValueError(
            f"even at its loosest setting, {good:g}, the rule keeps less than {mass:g} of the mass."
        )
    if left(strict_CV := dial.at(bad, p_CV.shape)) >= mass:
        return bad, strict_CV
    for _ in range(HALVINGS):
        middle = (good + bad) / 2
        if left(tried_CV := dial.at(middle, p_CV.shape)) >= mass:
            good, kept_CV = middle, tried_CV
            if left(kept_CV) <= mass + close:
                break
        else:
            bad = middle
    return good, kept_CV


def compare_support(
    dials: Mapping[str, Dial], p_CV: Tensor, true_CV: Tensor, mass: float, *, close: float = 0.0
) -> dict[str, Matched]:
    """Every rule at the setting that keeps the same mass of p̂."""
    if not isinstance(dials, Mapping):
        raise TypeError(f"dials is {shown(dials)}, but must be a dict from a rule's name to its Dial.")
    found = {}
    for name, dial in dials.items():
        setting, kept_CV = at_mass(dial, p_CV, mass, close=close)
        found[name] = Matched(setting, support(kept_CV, p_CV, true_CV))
    return found


@dataclass(frozen=True)
class NextTokens:
    """A decoder, ready for one model and one job.

    Which tokens a decoder may draw next, exactly, and with which probabilities.

        K = { x : f_k(… f_1(log p(· | prefix)) …)(x) > −∞, and the pick takes x };   q(x) ∝ p_K(x) on K

    A Sample draws from its reshaped scores; basis-aware sampling from the tokens among them that it accepts,
    one exact test for each; Greedy has one token. A search that weighs whole texts against each other (a
    beam, MBR) has no distribution over next tokens.
    """

    transforms: tuple[Transform, ...]
    pick: Any
    bound: Any
    """The pick with the model's output matrix, where it is basis-aware."""

    def __call__(self, step: Step, history: Sequence[Hypothesis]) -> tuple[Tensor, Tensor]:
        """(N, V) true where a token may be drawn, and (N, V) the log-probability with which it is."""
        scores_NV = reshape(step, history, self.transforms)
        kept_NV = alive(scores_NV)
        if isinstance(self.pick, ArgMax):
            best_N1 = scores_NV.argmax(dim=-1, keepdim=True)
            kept_NV = torch.zeros_like(kept_NV).scatter(1, best_N1, True)
        elif isinstance(self.pick, BasisAware):
            kept_NV = torch.stack(
                [self._accepted(step, scores_NV, kept_NV[row], row) for row in range(len(kept_NV))]
            )
        only_NV = scores_NV.masked_fill(~kept_NV, -torch.inf)
        return kept_NV, torch.log_softmax(only_NV, dim=-1)

    def _accepted(self, step: Step, scores_NV: Tensor, kept_V: Tensor, row: int) -> Tensor:
        order = kept_V.nonzero()[:, 0].tolist()
        taken = self.accepted(step, scores_NV, order, row)
        found_V = torch.zeros_like(kept_V)
        found_V[[token for token, took in zip(order, taken, strict=True) if took]] = True
        if not bool(found_V.any()):  # when all are rejected, the most probable is taken
            found_V[scores_NV[row].argmax()] = True
        return found_V

    def accepted(self, step: Step, scores_NV: Tensor, order: Sequence[int], row: int = 0) -> list[bool]:
        """Which of these tokens basis-aware sampling accepts."""
        tested_NV = scores_NV if self.pick.on == "processed" else step.logp_NV
        tau = self.pick.tau(tested_NV)[row]
        p_V = tested_NV[row].double().exp()
        test = self.bound.test.step(p_V)
        return [bool(p_V[token] >= tau) or bool(test.accepts(token, tau=tau)) for token in order]


def next_tokens(decoder: Greedy | Sample, model: StepModel, job: Job) -> NextTokens:
    """The decoder for this model and job."""
    if not isinstance(decoder, Greedy | Sample):
        raise TypeError(
            f"{shown(decoder)} has no distribution over next tokens: give a Sample or Greedy; other searches "
            "are measured by the texts that they find (text_truth)."
        )
    pick = decoder.pick if isinstance(decoder, Sample) else ArgMax()
    transforms = bind_transforms(decoder.transforms, model, job)
    bound = pick.bind(model, transforms) if isinstance(pick, BasisAware) else None
    return NextTokens(transforms, pick, bound)
