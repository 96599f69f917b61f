"""Parameter matching: the setting of each sampler that rejects a given share of human tokens.

    share(θ) = 1/N Σ_t [ the sampler at θ rejects y_t after y_{<t} ]

Samplers can be compared at equal shares of rejected human tokens. The model reads the text once. Each share
is monotonic in the setting, so the settings follow exactly from the strictest setting that keeps each token.

Hewitt, Manning & Liang 2022, §5; Finlayson et al. 2024, §6.
papers.bib: hewitt2022truncation, finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import torch

from unspool.basis import BasisTest
from unspool.decode.arguments import as_int, as_number, function_of, items, shown
from unspool.decode.picks import AUTO_RANK
from unspool.diagnose.critical_settings import BasisCriticals, Match, Positions, StrictestSettings, criteria
from unspool.evaluate.teacher_forcing import Window, forced, read
from unspool.interfaces import StepModel

CHUNK = 64
"""Positions per step; it limits the memory for float64 distributions."""


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

    The closed forms use every token but the first of each text. The exact basis-aware tests take longer: they
    use `basis_tokens` evenly spaced tokens (0: none) and `rank` directions ("auto": at most 20; None: all),
    and need a model with an output matrix. An encoder–decoder needs `sources`, one per text; all tokens of
    the targets count. `progress` is called with the number of processed tokens and of all tokens.
    """
    shares = items("shares", shares, "a list of shares such as 0.01")
    if not shares:
        raise ValueError("shares is empty: give at least one, such as 0.01 for 1 % of the tokens")
    for share in shares:
        as_number("share", share, above=0, at_most=1, advice="0.01 is 1 % of the tokens.")
    basis_tokens = as_int("basis_tokens", basis_tokens, at_least=0, advice="0 is none.")
    if progress is not None and not function_of(progress, 2):
        raise TypeError(f"progress is {shown(progress)}, but must be a function of two numbers, or None")
    parts = forced(model, texts, sources, context=context)
    total = sum(len(part.tokens) - part.first for part in parts)
    matrix = model.output_matrix
    rules = criteria(None if matrix is None else matrix.shape[1])
    collectors = [
        (StrictestSettings(criterion, shares, total), critical) for criterion, critical in rules.items()
    ]
    tested_tokens = min(basis_tokens, total)
    basis = None
    if matrix is not None and tested_tokens:
        test_rank = min(AUTO_RANK, matrix.shape[1]) if isinstance(rank, str) and rank == "auto" else rank
        basis = BasisCriticals(BasisTest(matrix.detach(), test_rank), test_rank, shares, tested_tokens)
    done = 0
    for positions in _read_positions(model, parts, batch):
        for collector, critical in collectors:
            collector.extend(critical(positions).tolist())
        if basis is not None:
            basis.extend(_select_evenly(positions, done, total, tested_tokens))
        done += len(positions.token_N)
        if progress is not None:
            progress(done, total)
    matches = [collector.match(share) for collector, _ in collectors for share in shares]
    if basis is not None:
        by_share = [basis.matches(share) for share in shares]
        matches += [match for same_rule in zip(*by_share, strict=True) for match in same_rule]
    return matches


def rejected_shares(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    settings: Mapping[str, float],
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    context: int | None = None,
    batch: int = 8,
) -> dict[str, float]:
    """Return the share of the tokens of texts that each sampler rejects at a given setting.

    `settings` maps the names of `thresholds` to settings, such as {"eta": 0.02}; basis-aware samplers are not
    supported.
    """
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise TypeError(f'settings is {shown(settings)}, but must be a dict such as {{"eta": 0.02}}')
    for name, setting in settings.items():
        as_number(name, setting, advice="It is the sampler's setting.")
    parts = forced(model, texts, sources, context=context)
    matrix = model.output_matrix
    rules = {
        each.name: (each, f) for each, f in criteria(None if matrix is None else matrix.shape[1]).items()
    }
    if unknown := sorted(settings.keys() - rules.keys()):
        raise ValueError(f"{', '.join(unknown)} is unknown: choose from {', '.join(sorted(rules))}")
    rejected, total = dict.fromkeys(settings, 0), 0
    for positions in _read_positions(model, parts, batch):
        total += len(positions.token_N)
        for name, setting in settings.items():
            criterion, critical = rules[name]
            rejected[name] += int(criterion.rejects(setting, critical(positions)).sum())
    return {name: count / total for name, count in rejected.items()}


def _read_positions(model: StepModel, parts: Sequence[Window], batch: int) -> Iterator[Positions]:
    for seen in read(model, parts, batch=batch):
        for logp_NV, token_N in zip(
            torch.split(seen.logp_MV, CHUNK), torch.split(seen.token_M, CHUNK), strict=True
        ):
            yield Positions(logp_NV.cpu(), token_N.cpu())


def _select_evenly(positions: Positions, done: int, total: int, tested_tokens: int) -> Positions:
    """Return the positions, numbered from `done`, that are among `tested_tokens` evenly spaced ones."""
    number_N = torch.arange(done, done + len(positions.token_N))
    rows_M = ((number_N + 1) * tested_tokens // total > number_N * tested_tokens // total).nonzero()[:, 0]
    return Positions(positions.logp_NV[rows_M], positions.token_N[rows_M])
