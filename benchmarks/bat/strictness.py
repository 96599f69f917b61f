"""Samplers of equal strictness: settings that reject the same share of human tokens, and what they reject elsewhere.

The settings are chosen on some texts (`unspool.diagnose.matched_thresholds`). Their shares on other texts are measured
apart, because 10 % of the tokens of some texts is not 10 % of all: tokens of one text are alike, so the interval is
over texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from statistics import fmean
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

import unspool as us
from unspool.basis import BasisTest
from unspool.diagnose.matched_thresholds import thresholds
from unspool.evaluate.teacher_forcing import read, windows
from unspool.lab.inference import t_interval

Progress = Callable[[int, int], None]


def match(
    model: Any,
    rows: Sequence[Sequence[int]],
    shares: Sequence[float],
    samplers: Sequence[str],
    rank: int,
    progress: Progress,
) -> dict[str, Any]:
    """Return the decoder of each share and sampler, and the interval of the share for independent tokens."""
    tokens = sum(len(row) - 1 for row in rows)
    matches = thresholds(model, rows, shares, rank=rank, basis_tokens=tokens, progress=progress)
    chosen = [it for it in matches if it.sampler in samplers]
    if missing := set(samplers) - {it.sampler for it in chosen}:
        raise SystemExit(f"no such sampler: {', '.join(sorted(missing))}")
    return {
        "tokens": tokens,
        "texts": len(rows),
        "settings": [
            {"share": it.share, "sampler": it.sampler, "decoder": it.decoder, "setting": it.setting}
            | {"rejected": float(it.rejected), "low": it.low, "high": it.high}
            for it in chosen
        ],
    }


def kept_tokens(
    decoder: Any, logp_NV: Tensor, test: BasisTest | None, token_N: Tensor | None = None
) -> Tensor:
    """Return the tokens that a sampler can draw, (N, V); with `token_N`, whether it can draw these, (N,)."""
    kept_NV = reduce(
        torch.logical_and,
        (us.survivors(rule, logp_NV) for rule in decoder.transforms),
        torch.ones_like(logp_NV, dtype=torch.bool),
    )
    kept_N = None if token_N is None else kept_NV.gather(1, token_N[:, None])[:, 0]
    if not isinstance(decoder.pick, us.BasisAware):
        return kept_NV if kept_N is None else kept_N
    assert test is not None
    for row, tau in enumerate(decoder.pick.tau(logp_NV)):
        p_V = logp_NV[row].double().exp()
        if kept_N is not None and token_N is not None:
            token = int(token_N[row])
            if p_V[token] < tau:
                kept_N[row] &= bool(test.accepts(p_V.numpy(), token, tau=tau))
            continue
        kept_NV[row] &= torch.from_numpy(test.step(p_V.numpy()).mask(tau))
        if not kept_NV[row].any():  # what is drawn then
            kept_NV[row, logp_NV[row].argmax()] = True
    return kept_NV if kept_N is None else kept_N


def rejected_elsewhere(
    model: Any, rows: Sequence[Sequence[int]], decoders: Mapping[str, str], rank: int, progress: Progress
) -> dict[str, Any]:
    """Return the share of the tokens of other texts that each decoder rejects, with an interval over texts."""
    parsed = {name: us.parse(decoder) for name, decoder in decoders.items()}
    test = BasisTest(model.output_matrix.detach(), rank)
    by_text: dict[str, list[list[bool]]] = {name: [[] for _ in rows] for name in parsed}
    done, total = 0, sum(len(row) - 1 for row in rows)
    with threadpool_limits(1):
        for seen in read(model, windows(rows, model.context), batch=8):
            for logp_NV, token_N, text_N in zip(
                *(torch.split(part, 64) for part in (seen.logp_MV, seen.token_M, seen.text_M)), strict=True
            ):
                for name, decoder in parsed.items():
                    kept_N = kept_tokens(decoder, logp_NV, test, token_N)
                    for text, kept in zip(text_N.tolist(), kept_N.tolist(), strict=True):
                        by_text[name][text].append(not kept)
                done += len(token_N)
                progress(done, total)
    shares = {name: [fmean(text) for text in texts] for name, texts in by_text.items()}
    return {
        "tokens": total,
        "texts": len(rows),
        "shares": {
            name: dict(zip(("mean", "low", "high"), (fmean(each), *t_interval(each)), strict=True))
            for name, each in shares.items()
        },
    }
