"""The decoder that the fields of a request describe."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import unspool as us
from unspool.decode import DRY, XTC, BadWords, DynamicTemperature, MinLength, Mirostat, TopNSigma
from unspool.decode.search import SEARCHES
from unspool.interfaces import Decoder, Transform
from unspool.serve.requests import DecodingFields, Limits

UNLIMITED = 1 << 30
Fields = DecodingFields

TRANSFORMS: dict[str, tuple[Sequence[Any], Callable[[Any], Transform | None]]] = {
    "logit_bias": ((None, {}), lambda it: us.LogitBias(it.logit_bias)),
    "bad_words": (([],), lambda it: BadWords(it.bad_words)),
    "min_tokens": ((0,), lambda it: MinLength(it.min_tokens)),
    "ignore_eos": ((False,), lambda _: MinLength(UNLIMITED)),
    "repetition_penalty": ((1,), lambda it: us.RepetitionPenalty(it.repetition_penalty)),
    "frequency_penalty": ((0,), lambda it: us.FrequencyPenalty(it.frequency_penalty)),
    "presence_penalty": ((0,), lambda it: us.PresencePenalty(it.presence_penalty)),
    "dry_multiplier": ((0,), lambda it: _dry(it)),
    "temperature": ((0, 1), lambda it: None if it.dynatemp_range else us.Temperature(it.temperature)),
    "dynatemp_range": ((0,), lambda it: _dynamic_temperature(it)),
    "top_n_sigma": ((-1, 0), lambda it: TopNSigma(it.top_n_sigma)),
    "top_k": ((-1, 0), lambda it: us.TopK(it.top_k)),
    "typical_p": ((1,), lambda it: us.Typical(it.typical_p)),
    "top_p": ((1,), lambda it: us.TopP(it.top_p)),
    "min_p": ((0,), lambda it: us.MinP(it.min_p)),
    "xtc_probability": ((0,), lambda it: _xtc(it)),
    "mirostat": ((0,), lambda it: Mirostat(it.mirostat_tau, it.mirostat_eta)),
}
"""Field → its values without an effect, and its transform; transforms are applied in this order."""


def _dry(fields: Fields) -> Transform | None:
    if fields.dry_penalty_last_n == 0:
        return None
    last = None if fields.dry_penalty_last_n < 0 else fields.dry_penalty_last_n
    return DRY(fields.dry_multiplier, fields.dry_base, fields.dry_allowed_length, last=last)


def _dynamic_temperature(fields: Fields) -> Transform:
    low, high = fields.temperature - fields.dynatemp_range, fields.temperature + fields.dynatemp_range
    return DynamicTemperature(max(0.01, low), high, fields.dynatemp_exponent)


def _xtc(fields: Fields) -> Transform | None:
    return None if fields.xtc_threshold > 0.5 else XTC(fields.xtc_threshold, fields.xtc_probability)


def decoder_of(fields: Fields, last: Sequence[Transform] = ()) -> Decoder:
    """The decoder that the fields describe: biases and penalties, temperature, truncation, then `last`."""
    if fields.decoder is not None:
        others = [name for name in (*TRANSFORMS, "num_beams") if name in fields.model_fields_set]
        if others:
            raise ValueError(f"decoder replaces {others[0]}: give one of them")
        return _with_transforms(us.parse(fields.decoder), last)
    made = (
        make(fields) for name, (neutral, make) in TRANSFORMS.items() if getattr(fields, name) not in neutral
    )
    rules = [*(it for it in made if it is not None), *last]
    if fields.num_beams > 1:
        return us.Beam(fields.num_beams, *rules)
    return us.Greedy(*rules) if fields.temperature == 0 else us.Sample(*rules)


def _with_transforms(decoder: Any, last: Sequence[Transform]) -> Decoder:
    """The decoder with further transforms after its own."""
    result: Decoder = copy.copy(decoder)
    if last and hasattr(decoder, "transforms"):
        object.__setattr__(result, "transforms", (*decoder.transforms, *last))
    elif last and hasattr(decoder, "options"):
        options = replace(decoder.options, transforms=(*decoder.options.transforms, *last))
        object.__setattr__(result, "options", options)
    elif last:
        raise ValueError(
            f"response_format, tools and thinking_budget need Greedy, Sample or a beam, not {decoder!r:.80}"
        )
    return result


def check_decoder(decoder: Any, limits: Limits) -> None:
    """Raise ValueError if a decoder, or one inside it, uses more rows than allowed."""
    for value in _integers(decoder):
        if value > limits.width:
            raise ValueError(
                f"{decoder!r:.80} uses {value} rows per text, but this server allows {limits.width}"
            )


def _integers(decoder: Any) -> list[int]:
    """The integer settings of a decoder, which multiply its rows."""
    found: list[int] = []
    for field in fields(decoder):
        value = getattr(decoder, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
        elif type(value) in SEARCHES.values() or field.name == "options":
            found += _integers(value)
    return found
