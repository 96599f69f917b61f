"""The search that a request's fields ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import unspool as us
from unspool.protocols import Search, Transform
from unspool.serve.request_fields import DecodingFields, ResponseFormat

CHOOSING = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "num_beams", "logit_bias"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty"),
)
"""Fields that say how a token is chosen."""


def search_of(fields: DecodingFields) -> Search:
    """Penalties and biases first, then the temperature, then what cuts, then the grammar."""
    held = _held_to(fields.response_format)
    if fields.decoder is not None:
        beside = [name for name in CHOOSING if name in fields.model_fields_set]
        if beside:
            raise ValueError(f"decoder and {beside[0]} both say how a token is chosen: give one of them")
        return _with(us.parse(fields.decoder), held)
    rules = [*_biases(fields), *_cuts(fields), *held]
    if fields.num_beams > 1:
        return us.Beam(fields.num_beams, *rules)
    if fields.temperature == 0:
        return us.Greedy(*rules)
    return us.Sample(*rules)


def _biases(fields: DecodingFields) -> list[Transform]:
    rules: list[Transform] = []
    if fields.logit_bias:
        bias = {}
        for token, value in fields.logit_bias.items():
            if not (token.isascii() and token.isdigit()) or not -100 <= value <= 100:
                raise ValueError(
                    f"logit_bias holds {token!r:.40}: {value}, but must map token ids to numbers from −100 "
                    "to 100"
                )
            bias[int(token)] = value
        rules.append(us.LogitBias(bias))
    if fields.repetition_penalty != 1:
        rules.append(us.RepetitionPenalty(fields.repetition_penalty))
    if fields.frequency_penalty:
        rules.append(us.FrequencyPenalty(fields.frequency_penalty))
    if fields.presence_penalty:
        rules.append(us.PresencePenalty(fields.presence_penalty))
    return rules


def _cuts(fields: DecodingFields) -> list[Transform]:
    rules: list[Transform] = []
    if fields.temperature not in (0, 1):
        rules.append(us.Temperature(fields.temperature))
    if fields.top_k:
        rules.append(us.TopK(fields.top_k))
    if fields.typical_p < 1:
        rules.append(us.Typical(fields.typical_p))
    if fields.top_p < 1:
        rules.append(us.TopP(fields.top_p))
    if fields.min_p:
        rules.append(us.MinP(fields.min_p))
    return rules


def _held_to(wanted: ResponseFormat | None) -> list[Transform]:
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [us.Grammar(json_schema={"type": "object"})]
    if wanted.json_schema is None:
        raise ValueError('response_format is of type "json_schema" and has no json_schema: give one')
    return [us.Grammar(json_schema=wanted.json_schema.schema_)]


def _with(search: Any, held: list[Transform]) -> Search:
    """The same search, whose last transform is the grammar."""
    found: Search = search
    if held and hasattr(search, "transforms"):
        found = replace_transforms(search, (*search.transforms, *held))
    elif held and hasattr(search, "options"):
        options = replace(search.options, transforms=(*search.options.transforms, *held))
        found = replace_transforms(search, options, "options")
    elif held:
        raise ValueError(f"{search!r:.80} takes no response_format: take a Greedy, a Sample or a beam")
    return found


def replace_transforms(search: Any, value: Any, name: str = "transforms") -> Any:
    """A copy of a frozen search that has another value there."""
    import copy

    other = copy.copy(search)
    object.__setattr__(other, name, value)
    return other
