"""Parameter matching: for every sampler the setting that rejects a given share of the tokens people wrote.

    share(θ) = 1/N Σ_t [ the sampler at θ cuts y_t after y_{<t} ]

Settings of different samplers do not compare: top-p 0.9 and ε 0.001 cut differently much. At equal shares of
rejected human tokens they do. The model reads the text once; each rule's share falls or rises with its
setting, so that the settings follow exactly from the strictest one that each token survives.

Hewitt, Manning & Liang 2022, §5; Finlayson et al. 2024, §6.
papers.bib: hewitt2022truncation, finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch

from unspool.basis import BasisTest
from unspool.decode.arguments import as_number, as_whole, function_of, items, shown
from unspool.decode.picks import AUTO_RANK
from unspool.diagnose.critical_settings import BasisCriticals, First, Match, Places, criteria
from unspool.evaluate.teacher_forcing import forced, read
from unspool.interfaces import StepModel

PLACES = 64
"""Distributions that are looked at together: in float64 a large vocabulary takes its megabytes."""


def thresholds(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    shares: Sequence[float] = (0.01,),
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    rank: int | Literal["auto"] | None = "auto",
    basis_tokens: int = 2000,
    context: int | None = None,
    batch: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> list[Match]:
    """Match every sampler to every share, on texts (strings or token ids).

    The closed forms look at every token but the first of each text. The exact basis-aware tests, at `rank`
    directions (20, or as many as there are, by default; None is all), take longer: they look at
    `basis_tokens` of them, evenly spread (0: at none), and at a model that has an output matrix. An
    encoder–decoder needs `sources`, one for each text: the texts are then its targets, every token of which
    is looked at. `progress` is called with the tokens done and all tokens.
    """
    shares = items("shares", shares, "a list of shares such as 0.01")
    if not shares:
        raise ValueError("shares is empty: give at least one, such as 0.01 for 1 % of the tokens.")
    for share in shares:
        as_number("share", share, above=0, at_most=1, advice="0.01 is 1 % of the tokens.")
    basis_tokens = as_whole("basis_tokens", basis_tokens, at_least=0, advice="0 is none.")
    if progress is not None and not function_of(progress, 2):
        raise TypeError(f"progress is {shown(progress)}, but must be a function of two numbers, or None.")
    parts = forced(model, texts, sources, context=context)
    total = sum(len(part.tokens) - part.first for part in parts)
    matrix = model.output_matrix
    rules = criteria(None if matrix is None else matrix.shape[1])
    firsts = [(First(criterion, shares, total), critical) for criterion, critical in rules.items()]
    chosen = min(basis_tokens, total)
    basis = None
    if matrix is not None and chosen:
        looked = min(AUTO_RANK, matrix.shape[1]) if isinstance(rank, str) and rank == "auto" else rank
        basis = BasisCriticals(BasisTest(matrix.detach(), looked), looked, shares, chosen)
    done = 0
    for seen in read(model, parts, batch=batch):
        for begin in range(0, len(seen.token_M), PLACES):
            at = Places(
                seen.logp_MV[begin : begin + PLACES].cpu(), seen.token_M[begin : begin + PLACES].cpu()
            )
            for first, critical in firsts:
                first.extend(critical(at).tolist())
            if basis is not None:
                basis.extend(_spread(at, done, total, chosen))
            done += len(at.token_N)
            if progress is not None:
                progress(done, total)
    found = [first.match(share) for first, _ in firsts for share in shares]
    if basis is not None:
        by_share = [basis.matches(share) for share in shares]
        found += [match for same_rule in zip(*by_share, strict=True) for match in same_rule]
    return found


def rejected_shares(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    settings: Mapping[str, float],
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    context: int | None = None,
    batch: int = 8,
) -> dict[str, float]:
    """The other way round: the share of the tokens of texts that each sampler, at a setting, rejects.

    `settings` names samplers as `thresholds` does, such as {"eta": 0.02}; basis-aware ones are not known.
    """
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise TypeError(f'settings is {shown(settings)}, but must name samplers, such as {{"eta": 0.02}}.')
    for name, setting in settings.items():
        as_number(name, setting, advice="It is the sampler's setting.")
    parts = forced(model, texts, sources, context=context)
    matrix = model.output_matrix
    rules = {
        each.name: (each, f) for each, f in criteria(None if matrix is None else matrix.shape[1]).items()
    }
    if unknown := sorted(settings.keys() - rules.keys()):
        raise ValueError(f"{', '.join(unknown)} is unknown here: choose from {', '.join(sorted(rules))}.")
    rejected, total = dict.fromkeys(settings, 0), 0
    for seen in read(model, parts, batch=batch):
        for begin in range(0, len(seen.token_M), PLACES):
            at = Places(seen.logp_MV[begin : begin + PLACES], seen.token_M[begin : begin + PLACES])
            total += len(at.token_N)
            for name, setting in settings.items():
                criterion, critical = rules[name]
                rejected[name] += int(criterion.rejects(setting, critical(at)).sum())
    return {name: count / total for name, count in rejected.items()}


def _spread(at: Places, done: int, total: int, chosen: int) -> Places:
    """Those of the places, numbered from `done`, that are among the `chosen` evenly spread ones of all."""
    number_N = torch.arange(done, done + len(at.token_N))
    rows_M = ((number_N + 1) * chosen // total > number_N * chosen // total).nonzero()[:, 0]
    return Places(at.logp_NV[rows_M], at.token_N[rows_M])
