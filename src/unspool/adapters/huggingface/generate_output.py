"""Texts as `generate` of transformers returns them: the prompt, what follows, padding on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from unspool.decode.path import Path


@dataclass
class Decoded(ModelOutput):  # type: ignore[misc]  # transformers has no types
    """What `generate` returns with return_dict_in_generate=True."""

    sequences: Tensor | None = None
    """As `generate` has them: the prompt, what follows, padding on the right."""
    sequences_scores: Tensor | None = None
    """What a ranking search ranks by, else the sum of log p by the model."""
    logps: tuple[tuple[float, ...], ...] | None = None
    """log p of every new token by the model itself."""
    scores: tuple[tuple[float, ...], ...] | None = None
    """log p of every new token in what it was drawn from."""
    finish: tuple[str, ...] | None = None
    """Why each text ended: "eos", "length" or "stop"."""


def decoded(groups: Sequence[Sequence[Path]], given_NT: Tensor, n: int, config: Any) -> Any:
    """n texts of every prompt, prompt after prompt."""
    for place, group in enumerate(groups):
        if len(group) < n:
            raise ValueError(
                f"{n} texts of every prompt were asked for, and the search found {len(group)} different ones "
                f"of prompt {place}: ask for fewer"
            )
    paths = [path for group in groups for path in group]
    sequences = _rows(paths, given_NT, _padding(config))
    if not config.return_dict_in_generate:
        return sequences
    return Decoded(
        sequences,
        torch.tensor([sum(path.logps) if path.total is None else path.total for path in paths]),
        tuple(path.logps for path in paths),
        tuple(path.scores for path in paths),
        tuple(str(path.finish) for path in paths),
    )


def _padding(config: Any) -> int:
    if config.pad_token_id is not None:
        return int(config.pad_token_id)
    eos = config.eos_token_id
    first = eos[0] if isinstance(eos, list | tuple) else eos
    return 0 if first is None else int(first)


def _rows(paths: Sequence[Path], given_NT: Tensor, padding: int) -> Tensor:
    longest = max(len(path.tokens) for path in paths)
    rows = [[*path.tokens, *[padding] * (longest - len(path.tokens))] for path in paths]
    given = given_NT[[path.request for path in paths]]
    return torch.cat((given, torch.tensor(rows, device=given_NT.device)), dim=1)
