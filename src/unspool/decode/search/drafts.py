"""Drafts of speculative decoding, and readers that feed drafted tokens to a model and remove rejected ones.

- `Reader.after(rows, texts)`: the Step after each text, and after each drafted token behind it.
- `Reader.forget(lengths)`: remove what was read beyond so many new tokens; the next `after` reads more.
- `Drafter.draft(rows, counts)`: at most so many tokens after each row.
- `Drafter.forget(lengths)`: so many tokens of each row are certain.
- `keep(rows)`: drop all other rows.

Shapes: M rows, T new tokens of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unspool.arguments import Checked, as_int, integer
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.multinomial import token_at
from unspool.decode.search.candidates import alternatives
from unspool.decode.search.sampling import PromptStart
from unspool.interfaces import Step, StepModel

RowText = tuple[Sequence[int], Sequence[int]]
"""The new tokens of a row, and drafted tokens after them."""


class SeparateReader:
    """Reads row after row, for models without `joining`."""

    def __init__(self, readers: list[JoinedReader]) -> None:
        self._readers = readers

    def after(self, rows: Sequence[int], texts: Sequence[RowText]) -> list[list[Step]]:
        return [self._readers[row].after([0], [text])[0] for row, text in zip(rows, texts, strict=True)]

    def forget(self, lengths: Sequence[int]) -> None:
        for reader, length in zip(self._readers, lengths, strict=True):
            reader.forget([length])

    def keep(self, rows: Sequence[int]) -> None:
        self._readers = [self._readers[row] for row in rows]


class SingleRow:
    """The part of `interfaces.Joining` that readers need, for one row of a model that can only rewind."""

    def __init__(self, prefill: PromptStart) -> None:
        assert prefill.model.rewindable is not None
        self._prefill, self._model = prefill, prefill.model.rewindable

    def extend_rows(self, state: Any, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, Any]:  # noqa: ARG002
        return self._model.extend(state, tokens_MT.to(self._prefill.step.logp_NV.device))

    def rewind_rows(self, state: Any, rows_M: Tensor, tokens_M: Tensor) -> Any:  # noqa: ARG002
        return self._model.rewind(state, int(tokens_M))


class JoinedReader:
    """Reads all rows that have the same number of new tokens in one pass."""

    def __init__(self, prefill: PromptStart, places: list[int]) -> None:
        self._joining: Any = prefill.model.joining or SingleRow(prefill)
        self._prefill, self._places = prefill, places
        self._read = [0] * len(places)
        self._state: Any = None
        self._last: list[Step] = []

    def after(self, rows: Sequence[int], texts: Sequence[RowText]) -> list[list[Step]]:
        if not self._last:
            self._last = [_row(self._prefill.step, place) for place in self._places]
        found = [
            [self._last[row]] if self._read[row] == len(text) else []
            for row, (text, _) in zip(rows, texts, strict=True)
        ]
        unread = [[*text, *more][self._read[row] :] for row, (text, more) in zip(rows, texts, strict=True)]
        for width in sorted({len(tokens) for tokens in unread} - {0}):
            own = [place for place, tokens in enumerate(unread) if len(tokens) == width]
            rows_M = torch.tensor([rows[it] for it in own])
            tokens_MT = torch.tensor([unread[it] for it in own])
            step, self._state = self._joining.extend_rows(self._started(), rows_M, tokens_MT)
            for m, place in enumerate(own):
                found[place] += [_row(step, m * width + t) for t in range(width)]
                self._last[rows[place]] = found[place][-1]
                self._read[rows[place]] += width
        return [steps[-1 - len(more) :] for steps, (_, more) in zip(found, texts, strict=True)]

    def _started(self) -> Any:
        if self._state is not None:
            return self._state
        state, rows = self._prefill.take_state(), len(self._prefill.step.logp_NV)
        return state if self._places == list(range(rows)) else state.select(torch.tensor(self._places))

    def forget(self, lengths: Sequence[int]) -> None:
        removed = {
            row: read - length
            for row, (read, length) in enumerate(zip(self._read, lengths, strict=True))
            if read > length
        }
        if removed:
            rows_M, tokens_M = torch.tensor([*removed]), torch.tensor([*removed.values()])
            self._state = self._joining.rewind_rows(self._state, rows_M, tokens_M)
        self._read = list(map(min, self._read, lengths))

    def keep(self, rows: Sequence[int]) -> None:
        self._places, self._read = [self._places[row] for row in rows], [self._read[row] for row in rows]
        self._last = [self._last[row] for row in rows] if self._last else []
        if self._state is not None and rows:
            self._state = self._state.select(torch.tensor(rows))


def _row(step: Step, row: int) -> Step:
    return step.select(torch.tensor([row], device=step.logp_NV.device))


Reader = JoinedReader | SeparateReader


class ReaderFactory:
    """Readers for the batches of a job, which share what the model has read of a prompt."""

    def __init__(self, model: StepModel, job: Job) -> None:
        self._model, self._prompts = model, job.prompts
        self._prefills: dict[tuple[int, ...], PromptStart] = {}

    def read(self, hypotheses: Sequence[Hypothesis]) -> Reader:
        requests = [hypothesis.request for hypothesis in hypotheses]
        if self._model.joining is None:
            return SeparateReader([JoinedReader(self._prefill((request,)), [0]) for request in requests])
        distinct = tuple(dict.fromkeys(requests))
        return JoinedReader(self._prefill(distinct), [distinct.index(request) for request in requests])

    def _prefill(self, requests: tuple[int, ...]) -> PromptStart:
        if requests not in self._prefills:
            self._prefills[requests] = PromptStart(self._model, [self._prompts[it] for it in requests])
        return self._prefills[requests]


MAX_NGRAM = 32


@dataclass(frozen=True)
class PromptLookup(Checked):
    """Speculative(PromptLookup(), length=8): draft the tokens that followed the last n-gram before.

        draft = y_j, y_{j+1}, …   where  y_{j−n} … y_{j−1} = y_{t−n} … y_{t−1},  j < t

    y_1 … y_{t−1} are the prompt and the text so far. n is the largest size, from `longest` down to
    `shortest`, whose last n-gram occurred before, and j follows its latest earlier occurrence. A draft that
    reaches the end of the text continues with its own first tokens, so it continues a loop. Saxena 2023
    (papers.bib: saxena2023prompt).

    Prompt lookup needs no draft model. It is meant for texts that repeat their prompt, such as summaries,
    edited code and quotations. A lookup takes constant time, because a table has the last place of every
    n-gram.
    """

    longest: int = integer(3, at_least=1, at_most=MAX_NGRAM)
    shortest: int = integer(2, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_int("PromptLookup.shortest", self.shortest, at_least=1, at_most=self.longest)

    def index(self, tokens: Sequence[int]) -> NgramIndex:
        found = NgramIndex(range(self.longest, self.shortest - 1, -1))
        found.extend(tokens)
        return found


@dataclass(eq=False)
class NgramIndex:
    """Where each n-gram of a text ended last, except at the end of the text."""

    sizes: Sequence[int]
    """Values of n, the first ones preferred."""
    text: list[int] = field(default_factory=list)
    _ends: dict[tuple[int, ...], int] = field(default_factory=dict)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            end = len(self.text)
            self._ends.update((tuple(self.text[end - n :]), end) for n in self.sizes if n <= end)
            self.text.append(token)

    def draft(self, count: int) -> list[int]:
        """At most `count` tokens that followed the last n-gram before; none if it is new."""
        length = len(self.text)
        found = (self._ends.get(tuple(self.text[length - n :])) for n in self.sizes if n <= length)
        begin = next((end for end in found if end is not None), None)
        tokens: list[int] = []
        for place in range(begin or 0, 0 if begin is None else begin + count):
            tokens.append(self.text[place] if place < length else tokens[place - length])
        return tokens


Distribution = Callable[[Step, Hypothesis], tuple[Tensor, Tensor]]
"""The reshaped scores after a hypothesis, (1, V), and the probability of each token to be picked."""


def extend(hypothesis: Hypothesis, token: int, step: Step, scores_1V: Tensor, job: Job) -> Hypothesis:
    ranked = alternatives(step.logp_NV, scores_1V, job.alternatives)[0] if job.alternatives else None
    return hypothesis.extend(token, step.logp_NV[0, token].item(), scores_1V[0, token].item(), job, ranked)


class DraftToken(NamedTuple):
    """A drafted token and its distribution; None if no other token was possible."""

    token: int
    q_1V: Tensor | None = None

    @property
    def probability(self) -> float:
        return 1.0 if self.q_1V is None else self.q_1V[0, self.token].item()


@dataclass
class DraftedRow:
    """A hypothesis and its random stream."""

    hypothesis: Hypothesis
    rng: Random


class ModelDrafter:
    """Drafts with a model, the next token of all rows in one pass."""

    def __init__(self, reader: Reader, job: Job, distribution: Distribution) -> None:
        self._reader, self._distribution = reader, distribution
        # Stop strings and stop conditions apply to accepted tokens only.
        self._job = replace(job, stop_condition=None, alternatives=0)
        self.forget, self.keep = reader.forget, reader.keep

    def draft(self, rows: Sequence[DraftedRow], counts: Sequence[int]) -> list[list[DraftToken]]:
        hypotheses = [replace(row.hypothesis, detokenizer=None) for row in rows]
        drafts: list[list[DraftToken]] = [[] for _ in rows]
        while live := [
            place
            for place, hypothesis in enumerate(hypotheses)
            if len(drafts[place]) < counts[place] and hypothesis.finish_reason is None
        ]:
            read = self._reader.after(live, [(hypotheses[place].tokens, ()) for place in live])
            for place, (step,) in zip(live, read, strict=True):
                scores_1V, q_1V = self._distribution(step, hypotheses[place])
                token = token_at(q_1V[0], rows[place].rng.random())
                drafts[place].append(DraftToken(token, q_1V))
                hypotheses[place] = extend(hypotheses[place], token, step, scores_1V, self._job)
        return drafts


class LookupDrafter:
    """Drafts with `PromptLookup`."""

    def __init__(
        self, lookup: PromptLookup, model: StepModel, job: Job, length: int, hypotheses: Sequence[Hypothesis]
    ) -> None:
        shares_ids = not job.is_encoder_decoder or model.source_tokenizer is None
        self._vocabulary, self._length = model.vocab_size, length
        self._windows, self._indexes = [length] * len(hypotheses), list[NgramIndex]()
        self._starts = list[int]()
        for hypothesis in hypotheses:
            source = job.prompts[hypothesis.request] if job.is_encoder_decoder and shares_ids else ()
            self._indexes.append(lookup.index([*source, *hypothesis.prompt]))
            self._starts.append(len(self._indexes[-1].text))

    def draft(self, rows: Sequence[DraftedRow], counts: Sequence[int]) -> list[list[DraftToken]]:
        drafts = []
        for place, (row, count, index) in enumerate(zip(rows, counts, self._indexes, strict=True)):
            known = len(index.text) - self._starts[place]
            index.extend(row.hypothesis.tokens[known:])
            tokens = index.draft(min(count, self._windows[place]))
            drafts.append([DraftToken(it) for it in takewhile(lambda it: it < self._vocabulary, tokens)])
        self._drafted = list(map(len, drafts))
        return drafts

    def forget(self, lengths: Sequence[int]) -> None:
        """Draft fewer tokens after a rejection, and more after a success."""
        for place, (length, drafted) in enumerate(zip(lengths, self._drafted, strict=True)):
            accepted = length - (len(self._indexes[place].text) - self._starts[place])
            if drafted:
                grown = accepted + 1 if accepted < drafted else 2 * self._windows[place]
                self._windows[place] = min(grown, self._length)

    def keep(self, rows: Sequence[int]) -> None:
        for name in ("_windows", "_indexes", "_starts"):
            setattr(self, name, [getattr(self, name)[row] for row in rows])


Drafter = ModelDrafter | LookupDrafter
