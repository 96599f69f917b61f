"""The texts of a batch of vLLM's: each gets its decoder when it begins, and its token at every step.

    z_i ← 0 for the token that was drawn, −∞ for all others

so that vLLM takes that token, whatever it does with the logits afterwards. Every request
is a call of its own: its text is the one that `us.generate` gives for its prompt and seed, up to rounding.
With `n`, vLLM gives answer k the seed `seed + k`.
A text that cannot be written as it was asked for is ended, with a line in the log: an error here would end
those of all other requests, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.picks import ArgMax, BasisAware
from unspool.decode.rng import stream_key
from unspool.decode.search.sampling import Greedy, Sample, bind_transforms, draw
from unspool.decode.spec import parse
from unspool.heads.softmax import log_softmax
from unspool.integrations.vllm.served_model import ServedModel
from unspool.interfaces import BindablePick, BindableTransform, CountingPick, Pick, Step, Transform

KEY = "unspool"
"""Where in `extra_args` the decoder stands; the same over HTTP, in `vllm_xargs`."""
MAX_DECODER_CHARS = 10_000
"""Characters of a decoder."""
NEUTRAL_SAMPLING_PARAMS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
"""vLLM's own settings of how a token is chosen, where they do nothing."""
LOGIT_CHANGING_PARAMS = ("logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "min_tokens")
"""What vLLM does to logits before we see them, where it is asked to."""


@dataclass(frozen=True)
class RequestDecoder:
    """What chooses the tokens of a request, one at a time.

    The decoder that a request to vLLM asks for, as text among its `extra_args`.

        SamplingParams(extra_args={"unspool": "Sample(TopP(0.9), BasisAware(0.1))"}, seed=1)

    It is checked where the request arrives: an error in vLLM's workers would end every request there.
    """

    text: str
    """As it was asked for."""
    transforms: tuple[Transform, ...]
    pick: Pick


def request_decoder(params: Any) -> RequestDecoder | None:
    """The decoder of a request (its SamplingParams); None where it leaves all to vLLM.

    Whatever is wrong with it, in itself or beside other settings of the request, is a ValueError.
    """
    text = (getattr(params, "extra_args", None) or {}).get(KEY)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_DECODER_CHARS:
        raise ValueError(
            f"extra_args[{KEY!r}] is {shown(text)}, but must be a decoder as text, of at most "
            f'{MAX_DECODER_CHARS} characters, such as "Sample(Temperature(0.8), TopP(0.9))"'
        )
    found = _parse_decoder(text)
    _check_no_sampling_params(params)
    if isinstance(found.pick, BasisAware) and found.pick.on == "model":
        _check_unchanged_logits(params)
    return found


def _parse_decoder(text: str) -> RequestDecoder:
    try:
        decoder = parse(text)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if isinstance(decoder, Sample):
        return RequestDecoder(text, decoder.transforms, decoder.pick)
    if isinstance(decoder, Greedy):
        return RequestDecoder(text, decoder.transforms, ArgMax())
    raise ValueError(
        f"{text!r:.200}: vLLM asks for one token at a time, and has no rows for this search: give a Sample "
        "or a Greedy, or run the model with unspool"
    )


def _check_no_sampling_params(params: Any) -> None:
    said = [
        name for name, neutral in NEUTRAL_SAMPLING_PARAMS.items() if getattr(params, name, neutral) != neutral
    ]
    said += ["top_k"] if getattr(params, "top_k", 0) not in (0, -1) else []
    if said:
        raise ValueError(
            f"extra_args[{KEY!r}] and {said[0]}={getattr(params, said[0])!r} both say how a token is chosen: "
            f"write it into the decoder, and leave {said[0]} at {NEUTRAL_SAMPLING_PARAMS.get(said[0], 0)!r} "
            "(a server takes it from the model's files unless it is started with --generation-config vllm)"
        )


def _check_unchanged_logits(params: Any) -> None:
    beside = next((name for name in LOGIT_CHANGING_PARAMS if getattr(params, name, None)), None)
    if beside is not None:
        raise ValueError(
            f"BasisAware tests the model's own probabilities, and {beside} changes them before it sees them: "
            f'leave {beside} out, or say BasisAware(…, on="processed") to test what it makes of them'
        )


# One text that vLLM is writing with a decoder of ours: its tokens so far, and its random stream.
#
# vLLM tells how many tokens there are, and may call for a token that it then throws away (a prompt that is
# read in several parts): the random stream goes back to where it was. It may also set a text aside and begin
# it again later; what was remembered of it is then taken up where it was left.


PLACEHOLDER_TOKEN = -1
"""What vLLM writes for a token that is not yet back from the device: it is the one that was drawn."""


@dataclass
class DrawnToken:
    """A token that was drawn, and may still be thrown away."""

    token: int
    logp: float
    score: float
    state: Any
    """The state of the random stream before."""


@dataclass(eq=False)
class RunningSequence:
    """A request's text as it grows."""

    decoder: RequestDecoder | None
    """It has looked at the model and the request; None where there is none that can."""
    seed: int
    prompt: tuple[int, ...]
    ends: frozenset[int]
    """Tokens that end it."""
    tokens: tuple[int, ...] = ()
    """Those that were there when it began here, of which no log-probabilities are known."""
    fault: str | None = None
    """Why it had to be ended."""
    path: Hypothesis = field(init=False)
    rng: Random = field(init=False)
    drawn: DrawnToken | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Rules see such tokens as a part of the prompt; a draw takes one number, but for rejections.
        self.path = Hypothesis(0, 0, (*self.prompt, *self.tokens))
        self.rng = Random(stream_key(self.seed, self.prompt, 0))
        for _ in self.tokens:
            self.rng.random()

    @property
    def written(self) -> tuple[int, ...]:
        """All of its tokens."""
        return (*self.tokens, *self.path.tokens)

    def follow(self, count: int, last: int) -> bool:
        """Go to where vLLM is: `count` tokens, of which `last` is the last. False where it is elsewhere."""
        known = len(self.tokens) + len(self.path.tokens)
        if self.drawn is not None and count == known:
            self.rng.setstate(self.drawn.state)
        elif self.drawn is not None and count == known + 1 and last in (PLACEHOLDER_TOKEN, self.drawn.token):
            self.path = _append_token(self.path, self.drawn)
        elif count != known:
            return False
        self.drawn = None
        return True

    def goes_on_with(self, prompt: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether a text that begins so is this one, set aside before."""
        pending = () if self.drawn is None else (self.drawn.token,)
        return self.prompt == tuple(prompt) and tuple(tokens) in (self.written, (*self.written, *pending))


def _append_token(path: Hypothesis, drawn: DrawnToken) -> Hypothesis:
    return replace(
        path,
        tokens=(*path.tokens, drawn.token),
        logps=(*path.logps, drawn.logp),
        scores=(*path.scores, drawn.score),
    )


MAX_PREEMPTED = 256
"""Texts that are remembered after they have left: one that was only set aside is among them."""
MAX_BOUND_DECODERS = 256
"""Decoders that are kept ready for the next request that asks for the same."""
NO_LIMIT = 2**31


class SequenceSampler:
    """Begins texts, and draws their tokens."""

    def __init__(self, model: ServedModel, report: Callable[[str], None]) -> None:
        self._model, self._report = model, report
        self._left: deque[RunningSequence] = deque(maxlen=MAX_PREEMPTED)
        self._ready: dict[str, RequestDecoder] = {}

    def begin(
        self,
        params: Any,
        prompt: Sequence[int] | None,
        tokens: Sequence[int],
        aside: Sequence[RunningSequence] = (),
    ) -> RunningSequence | None:
        """The text of a request that enters the batch; None where it is not ours to write.

        Where it has tokens, it was here before: it is looked for among those that left, and `aside`.
        """
        try:
            asked = request_decoder(params)
        except ValueError as error:  # vLLM has asked before, but for requests that go around its door
            return self.refused(params, str(error))
        if asked is None:
            return None
        found = self._resumed(params, asked, prompt or (), tokens, aside) if tokens else None
        return found or self._new(params, asked, tuple(prompt or ()), tuple(tokens))

    def leave(self, text: RunningSequence) -> None:
        """A request that has left the batch, for good or for a while."""
        self._left.append(text)
        if text.decoder is not None and isinstance(text.decoder.pick, CountingPick):
            text.decoder.pick.pop_stats(text.rng)

    def draw(self, logits_NV: Tensor, rows: Sequence[tuple[int, RunningSequence]]) -> None:
        """Write into the rows of some texts that their token is drawn; rows that share a decoder together."""
        together: dict[int, list[tuple[int, RunningSequence]]] = {}
        for row, text in rows:
            together.setdefault(id(text.decoder), []).append((row, text))
        for group in together.values():
            self._draw(logits_NV, group)

    def refused(self, params: Any, reason: str) -> RunningSequence:
        """A request that cannot be written: its text ends with its first token."""
        text = RunningSequence(None, 0, (), _eos_ids(params))
        self._end(text, reason)
        return text

    def _draw(self, logits_NV: Tensor, group: Sequence[tuple[int, RunningSequence]]) -> None:
        decoder = group[0][1].decoder
        going = [(row, text) for row, text in group if text.fault is None]
        try:
            tokens = _draw_tokens(logits_NV, decoder, going) if decoder is not None and going else []
        except Exception as error:  # one request's fault must not end the others
            if len(going) > 1:
                for alone in going:
                    self._draw(logits_NV, [alone])
            else:
                self._end(going[0][1], f"{type(error).__name__}: {error}")
        else:
            for (row, _), token in zip(going, tokens, strict=True):
                _force_token(logits_NV, row, token)
        for row, text in group:
            if text.fault is not None:
                _force_token(logits_NV, row, min(text.ends, default=0))

    def _end(self, text: RunningSequence, reason: str) -> None:
        text.fault = reason
        self._report(f"a text with extra_args[{KEY!r}] was ended: {reason}")

    def _new(
        self, params: Any, asked: RequestDecoder, prompt: tuple[int, ...], tokens: tuple[int, ...]
    ) -> RunningSequence:
        ends, seed = _eos_ids(params), params.seed
        if seed is None:  # torch's own: workers that share a model draw the same
            seed = int(torch.randint(NO_LIMIT, (1,)))
        limit = params.max_tokens or NO_LIMIT
        job = Job((prompt or (0,),), (limit,), (seed,), eos=ends, rows=1)
        try:
            decoder = self._prepared(asked, job)
        except Exception as error:  # a matrix that is missing, a tokenizer, a package
            return self.refused(params, f"{type(error).__name__}: {error}")
        return RunningSequence(decoder, seed, prompt, ends, tokens)

    def _prepared(self, asked: RequestDecoder, job: Job) -> RequestDecoder:
        """The decoder that has looked at the model, and at the request where one of its rules wants to."""
        alone = any(isinstance(rule, BindableTransform) for rule in asked.transforms)
        if not alone and asked.text in self._ready:
            return self._ready[asked.text]
        transforms = bind_transforms(asked.transforms, self._model, job)
        pick = asked.pick
        if isinstance(pick, BindablePick):
            pick = pick.bind(self._model, transforms)
        ready = RequestDecoder(asked.text, transforms, pick)
        if not alone:
            if len(self._ready) >= MAX_BOUND_DECODERS:
                self._ready.clear()
            self._ready[asked.text] = ready
        return ready

    def _resumed(
        self,
        params: Any,
        asked: RequestDecoder,
        prompt: Sequence[int],
        tokens: Sequence[int],
        aside: Sequence[RunningSequence],
    ) -> RunningSequence | None:
        for text in (*reversed(self._left), *aside):
            same = text.decoder is not None and text.decoder.text == asked.text
            if same and params.seed in (None, text.seed) and text.goes_on_with(prompt, tokens):
                if text in self._left:
                    self._left.remove(text)
                text.follow(len(tokens), tokens[-1])
                return text
        return None


def _eos_ids(params: Any) -> frozenset[int]:
    """What ends a text, as the request has it: the model's own end of text, and others."""
    first = getattr(params, "eos_token_id", None)
    return frozenset(params.all_stop_token_ids) | (frozenset() if first is None else {first})


def _draw_tokens(
    logits_NV: Tensor, decoder: RequestDecoder, group: Sequence[tuple[int, RunningSequence]]
) -> list[int]:
    rows_M = torch.tensor([row for row, _ in group], device=logits_NV.device)
    texts = [text for _, text in group]
    paths, rngs = [text.path for text in texts], [text.rng for text in texts]
    chosen_MV = logits_NV.index_select(0, rows_M)
    step = Step(log_softmax(chosen_MV), log_norm_N=chosen_MV.logsumexp(-1))
    before = [rng.getstate() for rng in rngs]
    try:
        tokens_M, scores_M = draw(step, paths, decoder.transforms, decoder.pick, rngs)
        if scores_M.isnan().any():
            raise ValueError("the model's logits are no numbers (NaN)")
    except Exception:
        for rng, state in zip(rngs, before, strict=True):
            rng.setstate(state)
        raise
    tokens: list[int] = tokens_M.tolist()
    logps = step.logp_NV.gather(1, tokens_M[:, None]).squeeze(1).tolist()
    found = zip(texts, tokens, logps, scores_M.tolist(), before, strict=True)
    for text, token, logp, score, state in found:
        text.drawn = DrawnToken(token, logp, score, state)
    return tokens


def _force_token(logits_NV: Tensor, row: int, token: int) -> None:
    logits_NV[row] = -torch.inf
    logits_NV[row, token] = 0.0
