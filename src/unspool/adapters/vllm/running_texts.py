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
from typing import Any

import torch
from torch import Tensor

from unspool.adapters.vllm.asked_decoder import KEY, AskedDecoder, asked_decoder
from unspool.adapters.vllm.running_text import Drawn, RunningText
from unspool.adapters.vllm.served_model import ServedModel
from unspool.decode.job import Job
from unspool.decode.search.reshape import prepared
from unspool.decode.search.token_loop import draw
from unspool.heads.softmax import normalised
from unspool.protocols import Bindable, Counting, Preparing, Step

LEFT = 256
"""Texts that are remembered after they have left: one that was only set aside is among them."""
READY = 256
"""Decoders that are kept ready for the next request that asks for the same."""
ENDLESS = 2**31


class RunningTexts:
    """Begins texts, and draws their tokens."""

    def __init__(self, model: ServedModel, report: Callable[[str], None]) -> None:
        self._model, self._report = model, report
        self._left: deque[RunningText] = deque(maxlen=LEFT)
        self._ready: dict[str, AskedDecoder] = {}

    def begin(
        self,
        params: Any,
        prompt: Sequence[int] | None,
        tokens: Sequence[int],
        aside: Sequence[RunningText] = (),
    ) -> RunningText | None:
        """The text of a request that enters the batch; None where it is not ours to write.

        Where it has tokens, it was here before: it is looked for among those that left, and `aside`.
        """
        try:
            asked = asked_decoder(params)
        except ValueError as error:  # vLLM has asked before, but for requests that go around its door
            return self.refused(params, str(error))
        if asked is None:
            return None
        found = self._resumed(params, asked, prompt or (), tokens, aside) if tokens else None
        return found or self._new(params, asked, tuple(prompt or ()), tuple(tokens))

    def leave(self, text: RunningText) -> None:
        """A request that has left the batch, for good or for a while."""
        self._left.append(text)
        if text.decoder is not None and isinstance(text.decoder.pick, Counting):
            text.decoder.pick.counted(text.rng)

    def draw(self, logits_NV: Tensor, rows: Sequence[tuple[int, RunningText]]) -> None:
        """Write into the rows of some texts that their token is drawn; rows that share a decoder together."""
        together: dict[int, list[tuple[int, RunningText]]] = {}
        for row, text in rows:
            together.setdefault(id(text.decoder), []).append((row, text))
        for group in together.values():
            self._draw(logits_NV, group)

    def refused(self, params: Any, reason: str) -> RunningText:
        """A request that cannot be written: its text ends with its first token."""
        text = RunningText(None, 0, (), _ends(params))
        self._end(text, reason)
        return text

    def _draw(self, logits_NV: Tensor, group: Sequence[tuple[int, RunningText]]) -> None:
        decoder = group[0][1].decoder
        going = [(row, text) for row, text in group if text.fault is None]
        try:
            tokens = _drawn(logits_NV, decoder, going) if decoder is not None and going else []
        except Exception as error:  # one request's fault must not end the others
            if len(going) > 1:
                for alone in going:
                    self._draw(logits_NV, [alone])
            else:
                self._end(going[0][1], f"{type(error).__name__}: {error}")
        else:
            for (row, _), token in zip(going, tokens, strict=True):
                _take(logits_NV, row, token)
        for row, text in group:
            if text.fault is not None:
                _take(logits_NV, row, min(text.ends, default=0))

    def _end(self, text: RunningText, reason: str) -> None:
        text.fault = reason
        self._report(f"a text with extra_args[{KEY!r}] was ended: {reason}")

    def _new(
        self, params: Any, asked: AskedDecoder, prompt: tuple[int, ...], tokens: tuple[int, ...]
    ) -> RunningText:
        ends, seed = _ends(params), params.seed
        if seed is None:  # torch's own: workers that share a model draw the same
            seed = int(torch.randint(ENDLESS, (1,)))
        limit = params.max_tokens or ENDLESS
        job = Job((prompt or (0,),), (limit,), (seed,), eos=ends, rows=1)
        try:
            decoder = self._prepared(asked, job)
        except Exception as error:  # a matrix that is missing, a tokenizer, a package
            return self.refused(params, f"{type(error).__name__}: {error}")
        return RunningText(decoder, seed, prompt, ends, tokens)

    def _prepared(self, asked: AskedDecoder, job: Job) -> AskedDecoder:
        """The decoder that has looked at the model, and at the request where one of its rules wants to."""
        alone = any(isinstance(rule, Preparing) for rule in asked.transforms)
        if not alone and asked.text in self._ready:
            return self._ready[asked.text]
        transforms = prepared(asked.transforms, self._model, job)
        pick = asked.pick
        if isinstance(pick, Bindable):
            pick = pick.bind(self._model, transforms)
        ready = AskedDecoder(asked.text, transforms, pick)
        if not alone:
            if len(self._ready) >= READY:
                self._ready.clear()
            self._ready[asked.text] = ready
        return ready

    def _resumed(
        self,
        params: Any,
        asked: AskedDecoder,
        prompt: Sequence[int],
        tokens: Sequence[int],
        aside: Sequence[RunningText],
    ) -> RunningText | None:
        for text in (*reversed(self._left), *aside):
            same = text.decoder is not None and text.decoder.text == asked.text
            if same and params.seed in (None, text.seed) and text.goes_on_with(prompt, tokens):
                if text in self._left:
                    self._left.remove(text)
                text.follow(len(tokens), tokens[-1])
                return text
        return None


def _ends(params: Any) -> frozenset[int]:
    """What ends a text, as the request has it: the model's own end of text, and others."""
    first = getattr(params, "eos_token_id", None)
    return frozenset(params.all_stop_token_ids) | (frozenset() if first is None else {first})


def _drawn(logits_NV: Tensor, decoder: AskedDecoder, group: Sequence[tuple[int, RunningText]]) -> list[int]:
    rows_M = torch.tensor([row for row, _ in group], device=logits_NV.device)
    texts = [text for _, text in group]
    paths, rngs = [text.path for text in texts], [text.rng for text in texts]
    chosen_MV = logits_NV.index_select(0, rows_M)
    step = Step(normalised(chosen_MV), log_norm_N=chosen_MV.logsumexp(-1))
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
        text.drawn = Drawn(token, logp, score, state)
    return tokens


def _take(logits_NV: Tensor, row: int, token: int) -> None:
    logits_NV[row] = -torch.inf
    logits_NV[row, token] = 0.0
