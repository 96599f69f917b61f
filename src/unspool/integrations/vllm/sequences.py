"""Draw tokens for the requests of vLLM that name a decoder.

    z_i ← 0 for the drawn token, −∞ for all others

so that vLLM must take that token. Each request is independent: its text equals that of `us.generate` for its
prompt and seed, up to rounding. With `n`, vLLM uses the seed `seed + k` for output k. A request that fails is
ended with an error in the log, because an exception here would end all other requests, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import BasisAware
from unspool.decode.rng import stream_key
from unspool.decode.search.sampling import TokenDecoder, bind_rules, draw
from unspool.decode.spec import parse
from unspool.heads.softmax import step_from_logits
from unspool.integrations.vllm.served_model import ServedModel
from unspool.interfaces import BindableTransform, CountingPick, Pick, Transform

KEY = "unspool"
"""Key of the decoder in `extra_args` (over HTTP: `vllm_xargs`)."""
MAX_DECODER_CHARS = 10_000
NEUTRAL_SAMPLING_PARAMS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
"""Values at which vLLM's sampling parameters have no effect."""
LOGIT_CHANGING_PARAMS = ("logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "min_tokens")
"""Parameters with which vLLM changes logits before the processor."""


@dataclass(frozen=True)
class RequestDecoder:
    """The decoder of a request, given as a string in its `extra_args`.

        SamplingParams(extra_args={"unspool": "Sample(TopP(0.9), BasisAware(0.1))"}, seed=1)

    It is checked when the request arrives, because an error in a vLLM worker would end every request.
    """

    text: str
    transforms: tuple[Transform, ...]
    pick: Pick


def request_decoder(params: Any) -> RequestDecoder | None:
    """The decoder in a request's SamplingParams, or None; ValueError if it is invalid or conflicts."""
    text = (getattr(params, "extra_args", None) or {}).get(KEY)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_DECODER_CHARS:
        raise ValueError(
            f"extra_args[{KEY!r}] is {shown(text)}, but must be a decoder string of at most "
            f'{MAX_DECODER_CHARS} characters, such as "Sample(Temperature(0.8), TopP(0.9))"'
        )
    decoder = _parse_decoder(text)
    _check_no_sampling_params(params)
    if isinstance(decoder.pick, BasisAware) and decoder.pick.on == "model":
        _check_unchanged_logits(params)
    return decoder


def _parse_decoder(text: str) -> RequestDecoder:
    try:
        decoder = parse(text)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(decoder, TokenDecoder):
        raise ValueError(
            f"{text!r:.200}: vLLM samples one token at a time: use Sample or Greedy, or unspool's own server"
        )
    return RequestDecoder(text, decoder.transforms, decoder.pick)


def _check_no_sampling_params(params: Any) -> None:
    neutral = NEUTRAL_SAMPLING_PARAMS
    given = [name for name, value in neutral.items() if getattr(params, name, value) != value]
    given += ["top_k"] if getattr(params, "top_k", 0) not in (0, -1) else []
    if given:
        raise ValueError(
            f"extra_args[{KEY!r}] conflicts with {given[0]}={getattr(params, given[0])!r}: write it into the "
            f"decoder, and leave {given[0]} at {neutral.get(given[0], 0)!r} (a server reads it from the "
            "model's files unless it is started with --generation-config vllm)"
        )


def _check_unchanged_logits(params: Any) -> None:
    name = next((name for name in LOGIT_CHANGING_PARAMS if getattr(params, name, None)), None)
    if name is not None:
        raise ValueError(
            f"BasisAware tests the model's own probabilities, but {name} changes them: leave {name} out, or "
            'use BasisAware(…, on="processed")'
        )


PLACEHOLDER_TOKEN = -1
"""vLLM's value for a token that is not yet back from the device; it is the token that was drawn."""


@dataclass
class DrawnToken:
    """A drawn token that vLLM may still discard."""

    hypothesis: Hypothesis
    """The sequence with the token."""
    rng_state: Any
    """The random state before the draw."""


@dataclass(eq=False)
class RunningSequence:
    """A sequence that vLLM generates with a decoder: its tokens so far and its random stream.

    vLLM may request a token and discard it (chunked prefill); the random stream is then restored. It may also
    preempt a sequence and resume it later; the sequence then continues with its earlier state.
    """

    decoder: RequestDecoder | None
    """The decoder bound to the model; None if that failed."""
    seed: int
    prompt: tuple[int, ...]
    eos_ids: frozenset[int]
    tokens: tuple[int, ...] = ()
    """Output tokens from before this object existed, without log-probabilities."""
    error: str | None = None
    """The reason why the sequence is ended."""
    hypothesis: Hypothesis = field(init=False)
    rng: Random = field(init=False)
    drawn: DrawnToken | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Transforms see earlier tokens as part of the prompt; each took one random number, apart from
        # rejections.
        self.hypothesis = Hypothesis(0, 0, (*self.prompt, *self.tokens))
        self.rng = Random(stream_key(self.seed, self.prompt, 0))
        for _ in self.tokens:
            self.rng.random()

    @property
    def output(self) -> tuple[int, ...]:
        return (*self.tokens, *self.hypothesis.tokens)

    def extended(self, token: int, logp: float, score: float) -> Hypothesis:
        before = self.hypothesis
        tokens, logps = (*before.tokens, token), (*before.logps, logp)
        return replace(before, tokens=tokens, logps=logps, scores=(*before.scores, score))

    def synchronise(self, count: int, last: int) -> bool:
        """Follow vLLM to `count` output tokens, the last of which is `last`; False if that is impossible."""
        known = len(self.tokens) + len(self.hypothesis.tokens)
        if self.drawn is not None and count == known:
            self.rng.setstate(self.drawn.rng_state)
        elif (
            self.drawn is not None
            and count == known + 1
            and last in (PLACEHOLDER_TOKEN, self.drawn.hypothesis.tokens[-1])
        ):
            self.hypothesis = self.drawn.hypothesis
        elif count != known:
            return False
        self.drawn = None
        return True

    def can_resume(self, prompt: Sequence[int], tokens: Sequence[int]) -> bool:
        """True if a request with this prompt and output continues this sequence."""
        pending = () if self.drawn is None else self.drawn.hypothesis.tokens[-1:]
        return self.prompt == tuple(prompt) and tuple(tokens) in (self.output, (*self.output, *pending))


MAX_PREEMPTED = 256
"""Removed sequences that are kept, because vLLM may resume them."""
MAX_BOUND_DECODERS = 256
"""Bound decoders that are kept for later requests."""
NO_LIMIT = 2**31


class SequenceSampler:
    """Creates sequences for requests and draws their tokens."""

    def __init__(self, model: ServedModel, report: Callable[[str], None]) -> None:
        self._model, self._report = model, report
        self._removed: deque[RunningSequence] = deque(maxlen=MAX_PREEMPTED)
        self._bound: dict[str, RequestDecoder] = {}

    def begin(
        self,
        params: Any,
        prompt: Sequence[int] | None,
        tokens: Sequence[int],
        candidates: Sequence[RunningSequence] = (),
    ) -> RunningSequence | None:
        """The sequence of a request that enters the batch; None if it does not name a decoder.

        A request with output tokens was preempted: removed sequences and `candidates` are searched for it.
        """
        try:
            decoder = request_decoder(params)
        except ValueError as error:  # a request that bypassed `validate_params`
            return self.rejected(params, str(error))
        if decoder is None:
            return None
        resumed = self._resume(params, decoder, prompt or (), tokens, candidates) if tokens else None
        return resumed or self._new(params, decoder, tuple(prompt or ()), tuple(tokens))

    def remove(self, sequence: RunningSequence) -> None:
        self._removed.append(sequence)
        if sequence.decoder is not None and isinstance(sequence.decoder.pick, CountingPick):
            sequence.decoder.pick.pop_stats(sequence.rng)

    def draw(self, logits_NV: Tensor, rows: Sequence[tuple[int, RunningSequence]]) -> None:
        """Draw one token per sequence and force it in the logits; rows with the same decoder together."""
        groups: dict[int, list[tuple[int, RunningSequence]]] = {}
        for row, sequence in rows:
            groups.setdefault(id(sequence.decoder), []).append((row, sequence))
        for group in groups.values():
            self._draw(logits_NV, group)

    def rejected(self, params: Any, reason: str) -> RunningSequence:
        """A sequence that ends with its first token."""
        sequence = RunningSequence(None, 0, (), _eos_ids(params))
        self._end(sequence, reason)
        return sequence

    def _draw(self, logits_NV: Tensor, group: Sequence[tuple[int, RunningSequence]]) -> None:
        decoder = group[0][1].decoder
        live = [(row, sequence) for row, sequence in group if sequence.error is None]
        try:
            tokens = _draw_tokens(logits_NV, decoder, live) if decoder is not None and live else []
        except Exception as error:  # an error of one request must not end the others
            if len(live) > 1:
                for single in live:
                    self._draw(logits_NV, [single])
            else:
                self._end(live[0][1], f"{type(error).__name__}: {error}")
        else:
            for (row, _), token in zip(live, tokens, strict=True):
                _force_token(logits_NV, row, token)
        for row, sequence in group:
            if sequence.error is not None:
                _force_token(logits_NV, row, min(sequence.eos_ids, default=0))

    def _end(self, sequence: RunningSequence, reason: str) -> None:
        sequence.error = reason
        self._report(f"a request with extra_args[{KEY!r}] was ended: {reason}")

    def _new(
        self, params: Any, decoder: RequestDecoder, prompt: tuple[int, ...], tokens: tuple[int, ...]
    ) -> RunningSequence:
        eos_ids, seed = _eos_ids(params), params.seed
        if seed is None:  # torch's generator, so that tensor-parallel workers draw the same
            seed = int(torch.randint(NO_LIMIT, (1,)))
        limit = params.max_tokens or NO_LIMIT
        job = Job((prompt or (0,),), (limit,), (seed,), eos=eos_ids, rows=1)
        try:
            bound = self._bind(decoder, job)
        except Exception as error:  # a missing matrix, tokenizer or package
            return self.rejected(params, f"{type(error).__name__}: {error}")
        return RunningSequence(bound, seed, prompt, eos_ids, tokens)

    def _bind(self, decoder: RequestDecoder, job: Job) -> RequestDecoder:
        """The decoder bound to the model, and to the request if a transform needs it."""
        is_per_request = any(isinstance(rule, BindableTransform) for rule in decoder.transforms)
        if not is_per_request and decoder.text in self._bound:
            return self._bound[decoder.text]
        rules = bind_rules(decoder.transforms, decoder.pick, self._model, job)
        bound = RequestDecoder(decoder.text, *rules)
        if not is_per_request:
            if len(self._bound) >= MAX_BOUND_DECODERS:
                self._bound.clear()
            self._bound[decoder.text] = bound
        return bound

    def _resume(
        self,
        params: Any,
        decoder: RequestDecoder,
        prompt: Sequence[int],
        tokens: Sequence[int],
        candidates: Sequence[RunningSequence],
    ) -> RunningSequence | None:
        for sequence in (*reversed(self._removed), *candidates):
            same = sequence.decoder is not None and sequence.decoder.text == decoder.text
            if same and params.seed in (None, sequence.seed) and sequence.can_resume(prompt, tokens):
                if sequence in self._removed:
                    self._removed.remove(sequence)
                sequence.synchronise(len(tokens), tokens[-1])
                return sequence
        return None


def _eos_ids(params: Any) -> frozenset[int]:
    """The stop tokens of a request, with the model's EOS."""
    eos_id = getattr(params, "eos_token_id", None)
    return frozenset(params.all_stop_token_ids) | (frozenset() if eos_id is None else {eos_id})


def _draw_tokens(
    logits_NV: Tensor, decoder: RequestDecoder, group: Sequence[tuple[int, RunningSequence]]
) -> list[int]:
    rows_M = torch.tensor([row for row, _ in group], device=logits_NV.device)
    sequences = [sequence for _, sequence in group]
    hypotheses, rngs = [each.hypothesis for each in sequences], [each.rng for each in sequences]
    logits_MV = logits_NV.index_select(0, rows_M)
    step = step_from_logits(logits_MV)
    states = [rng.getstate() for rng in rngs]
    try:
        tokens_M, scores_M = draw(step, hypotheses, decoder.transforms, decoder.pick, rngs)
        if scores_M.isnan().any():
            raise ValueError("the model's logits are NaN")
    except Exception:
        for rng, state in zip(rngs, states, strict=True):
            rng.setstate(state)
        raise
    tokens: list[int] = tokens_M.tolist()
    logps = step.logp_NV.gather(1, tokens_M[:, None]).squeeze(1).tolist()
    drawn = zip(sequences, tokens, logps, scores_M.tolist(), states, strict=True)
    for sequence, token, logp, score, state in drawn:
        sequence.drawn = DrawnToken(sequence.extended(token, logp, score), state)
    return tokens


def _force_token(logits_NV: Tensor, row: int, token: int) -> None:
    logits_NV[row] = -torch.inf
    logits_NV[row, token] = 0.0
