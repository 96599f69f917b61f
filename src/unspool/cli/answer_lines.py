"""An answer as a line of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unspool.cli.models import Models
from unspool.cli.output import json_line
from unspool.cli.requests import AnsweredRequest


def answer_line(answer: AnsweredRequest, decoders: Mapping[str, str], models: Models) -> str:
    """What was asked, what was said, and by whom; `decoders` are the searches of specifications."""
    request, output = answer.request, answer.output
    record = {
        "prompt": request.text,
        "sample": answer.sample,
        "text": output.text,
        "tokens": output.tokens,
        "logps": output.logps,
        "scores": output.scores,
        "total": output.total,
        "finish": output.finish,
        "seed": output.seed,
        "decoder": decoders[request.spec],
        **models.record(),
    }
    if output.ranked:
        record["ranked"] = [
            {
                "model": _tokens(step.model, step.texts),
                "drawn": _tokens(step.drawn, step.texts),
            }
            for step in output.ranked
        ]
    if request.id is not None:
        record = {"id": request.id, **record}
    return json_line(record) + "\n"


def _tokens(ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> list[dict[str, Any]]:
    return [{"token": token, "text": texts.get(token), "logp": logp} for token, logp in ranked]
