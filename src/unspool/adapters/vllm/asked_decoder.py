"""The decoder that a request to vLLM asks for, as text among its `extra_args`.

    SamplingParams(extra_args={"unspool": "Sample(TopP(0.9), BasisAware(0.1))"}, seed=1)

It is checked where the request arrives: an error in vLLM's workers would end every request there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unspool.decode.arguments import shown
from unspool.decode.picks.argmax import ArgMax
from unspool.decode.picks.basis_aware import BasisAware
from unspool.decode.search.greedy import Greedy
from unspool.decode.search.sample import Sample
from unspool.decode.spec import parse
from unspool.protocols import Pick, Transform

KEY = "unspool"
"""Where in `extra_args` the decoder stands; the same over HTTP, in `vllm_xargs`."""
LONGEST = 10_000
"""Characters of a decoder."""
NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
"""vLLM's own settings of how a token is chosen, where they do nothing."""
BEFORE = ("logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "min_tokens")
"""What vLLM does to logits before we see them, where it is asked to."""


@dataclass(frozen=True)
class AskedDecoder:
    """What chooses the tokens of a request, one at a time."""

    text: str
    """As it was asked for."""
    transforms: tuple[Transform, ...]
    pick: Pick


def asked_decoder(params: Any) -> AskedDecoder | None:
    """The decoder of a request (its SamplingParams); None where it leaves all to vLLM.

    Whatever is wrong with it, in itself or beside other settings of the request, is a ValueError.
    """
    text = (getattr(params, "extra_args", None) or {}).get(KEY)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueError(
            f"extra_args[{KEY!r}] is {shown(text)}, but must be a decoder as text, of at most "
            f'{LONGEST} characters, such as "Sample(Temperature(0.8), TopP(0.9))"'
        )
    found = _of_single_tokens(text)
    _check_alone(params)
    if isinstance(found.pick, BasisAware) and found.pick.on == "model":
        _check_untouched(params)
    return found


def _of_single_tokens(text: str) -> AskedDecoder:
    try:
        search = parse(text)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if isinstance(search, Sample):
        return AskedDecoder(text, search.transforms, search.pick)
    if isinstance(search, Greedy):
        return AskedDecoder(text, search.transforms, ArgMax())
    raise ValueError(
        f"{text!r:.200}: vLLM asks for one token at a time, and has no rows for this search: give a Sample "
        "or a Greedy, or run the model with unspool"
    )


def _check_alone(params: Any) -> None:
    said = [name for name, neutral in NEUTRAL.items() if getattr(params, name, neutral) != neutral]
    said += ["top_k"] if getattr(params, "top_k", 0) not in (0, -1) else []
    if said:
        raise ValueError(
            f"extra_args[{KEY!r}] and {said[0]}={getattr(params, said[0])!r} both say how a token is chosen: "
            f"write it into the decoder, and leave {said[0]} at {NEUTRAL.get(said[0], 0)!r} (a server takes "
            "it from the model's files unless it is started with --generation-config vllm)"
        )


def _check_untouched(params: Any) -> None:
    beside = next((name for name in BEFORE if getattr(params, name, None)), None)
    if beside is not None:
        raise ValueError(
            f"BasisAware tests the model's own probabilities, and {beside} changes them before it sees them: "
            f'leave {beside} out, or say BasisAware(…, on="processed") to test what it makes of them'
        )
