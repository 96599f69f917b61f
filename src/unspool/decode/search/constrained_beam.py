"""Constrained beam search: beam search whose texts all hold the given phrases.

    Y_t = ∪_{c=0…C} best_{w_c} { y ∈ candidates :  y has c of the C phrase tokens },   Σ_c w_c = w

Candidates are the best continuations of the whole beam, every hypothesis with each token that carries one of
its phrases on, and every hypothesis with its own best token. The places of the beam are shared out among
banks of hypotheses that have equally many phrase tokens. Only a text that holds every phrase may end.
Post & Vilar 2018, §3 (dynamic beam allocation).
papers.bib: post2018fast

A phrase is a tuple of token ids, or a string that the model's tokenizer encodes as it stands (mind the space
before a word); its tokens must follow each other in what is generated. Phrases inside other phrases come with
them. `notes["unmet"]` of every text lists the phrases that it does not hold: empty, unless the model or a
transform gives a phrase's token no probability at all, or a stop string cuts a phrase short.
Differs from the paper: a hypothesis that could no longer fit its phrases, side by side, into the limit is
dropped at once, so that a limit of as many tokens as the phrases have is always enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Unpack

import torch

from unspool.decode.arguments import phrases as checked_phrases, within
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.search.beam import View, run_beams
from unspool.decode.search.beam_state import BeamKeywords, BeamOptions, BeamSearch, BeamState, Tree
from unspool.decode.search.candidates import Candidate, propose
from unspool.decode.transforms.biases import spelled
from unspool.interfaces import Detokenizer, StepModel, Transform

# How much of some required phrases a text already holds.
#
# A phrase is held once its tokens stand in the text one after the other. Of a phrase not yet held, the
# longest beginning that the text ends with counts as done (Knuth, Morris & Pratt's matching), so that a
# broken phrase falls back as far as it must and no further.
#
#     needed = Σ_{p not held} |p| − max_{p not held} done(p)
#
# is a number of tokens that certainly completes the text, and writing the next token of the phrase with the
# most done always lowers it.


Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Phrases:
    """Phrases to be held; those that another one contains are held with it and dropped."""

    phrases: tuple[Phrase, ...]

    @classmethod
    def of(cls, phrases: Iterable[Sequence[int]]) -> Phrases:
        """Without those that stand inside another one."""
        distinct = list(dict.fromkeys(tuple(phrase) for phrase in phrases))
        return cls(
            tuple(p for p in distinct if not any(p != other and _inside(p, other) for other in distinct))
        )

    @property
    def size(self) -> int:
        """Tokens of all phrases: what an empty text needs."""
        return sum(map(len, self.phrases))

    @cached_property
    def borders(self) -> tuple[tuple[int, ...], ...]:
        """For each phrase and place, the longest proper beginning that also ends there."""
        return tuple(map(_borders, self.phrases))

    def begin(self) -> PhraseProgress:
        """The progress of an empty text."""
        return PhraseProgress(self, (0,) * len(self.phrases))


@dataclass(frozen=True)
class PhraseProgress:
    """How far one text has come. Immutable: beams fork."""

    phrases: Phrases
    done: tuple[int, ...]
    """Tokens done of each phrase; its whole length once it is held."""

    @property
    def missing(self) -> tuple[Phrase, ...]:
        """The phrases not yet held."""
        return tuple(phrase for phrase, done in self._open())

    @property
    def needed(self) -> int:
        """How many more tokens certainly suffice."""
        rest = self._open()
        return sum(len(phrase) for phrase, _ in rest) - max((done for _, done in rest), default=0)

    @property
    def wanted(self) -> list[int]:
        """The tokens that would carry a phrase on, in the order of the phrases."""
        return list(dict.fromkeys(phrase[done] for phrase, done in self._open()))

    def push(self, token: int) -> PhraseProgress:
        """With one more token."""
        moved = []
        for phrase, borders, done in zip(self.phrases.phrases, self.phrases.borders, self.done, strict=True):
            while 0 < done < len(phrase) and phrase[done] != token:
                done = borders[done - 1]
            moved.append(done + 1 if done < len(phrase) and phrase[done] == token else done)
        return PhraseProgress(self.phrases, tuple(moved))

    def _open(self) -> list[tuple[Phrase, int]]:
        pairs = zip(self.phrases.phrases, self.done, strict=True)
        return [(phrase, done) for phrase, done in pairs if done < len(phrase)]


def _inside(short: Phrase, long: Phrase) -> bool:
    return any(long[at : at + len(short)] == short for at in range(len(long) - len(short) + 1))


def _borders(phrase: Phrase) -> tuple[int, ...]:
    borders = [0]
    for token in phrase[1:]:
        at = borders[-1]
        while at and phrase[at] != token:
            at = borders[at - 1]
        borders.append(at + (phrase[at] == token))
    return tuple(borders)


def allot(width: int, sizes: Sequence[int]) -> list[int]:
    """How many of the sizes[c] hypotheses of each bank are kept: `width` in all, or everything there is.

    Sharing the places of a beam among banks of hypotheses.

        w_c = ⌊w / B⌋,  the remainder to the last bank;  what bank c cannot fill goes to banks c±1, c±2, …

    Post & Vilar 2018, §3 (bank allocation and adjustment).
    papers.bib: post2018fast

    Differs from the paper: of two neighbours equally near, the fuller one (the one with more of its phrases)
    is served first.
    """
    banks = len(sizes)
    places = [width // banks] * banks
    places[-1] += width % banks
    spare = [max(0, place - size) for place, size in zip(places, sizes, strict=True)]
    kept = [min(place, size) for place, size in zip(places, sizes, strict=True)]
    for bank in range(banks):
        for near in sorted(range(banks), key=lambda other: (abs(other - bank), -other)):
            given = min(spare[bank], sizes[near] - kept[near])
            kept[near] += given
            spare[bank] -= given
    return kept


@dataclass(frozen=True, init=False, repr=False)
class ConstrainedBeam(BeamSearch):
    """ConstrainedBeam(5, (" Paris", (12, 7))): the best texts that hold " Paris" and tokens 12, 7."""

    phrases: tuple[str | tuple[int, ...], ...]
    """What every text must hold."""

    def __init__(
        self,
        width: int,
        phrases: Sequence[str | Sequence[int]],
        *transforms: Transform,
        **keywords: Unpack[BeamKeywords],
    ) -> None:
        super().__init__(width, *transforms, **keywords)
        object.__setattr__(self, "phrases", checked_phrases("ConstrainedBeam.phrases", phrases))

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each step; a request's texts come when its beam has stopped."""
        options = self.options.prepared(model, job)
        phrases = Phrases.of(spelled(phrase, model, "phrase") for phrase in self.phrases)
        _check(phrases, model, job)
        requests = [
            [_Guided(options, job, place, phrases, reader)]
            for place, reader in enumerate(_readers(model, job))
        ]
        return run_beams(model, job, requests, grow)


def grow(view: View, beams: Sequence[_Guided]) -> None:
    """Every beam takes from its best candidates, those that its phrases ask for, and the best of each row."""
    count = beams[0].options.candidates(beams[0].job.ends)
    sums = [beam.totals for beam in beams]
    found = propose(sums, count, view.step.logp_NV, view.scores_NV, covered_N=view.covered_N)
    asked = _asked(view, beams)
    for beam, candidates, more in zip(beams, found, asked, strict=True):
        # A token may come up more than once; by its hypothesis and id it is the same candidate.
        merged = {(one.parent, one.token): one for one in (*candidates, *more)}
        beam.take(sorted(merged.values(), key=lambda one: (-one.total, one.parent, one.token)))


def _asked(view: View, beams: Sequence[_Guided]) -> list[list[Candidate]]:
    """Every live hypothesis with each token that it wants, and with its most probable one."""
    wanted = [
        (beam.first_row + place, token)
        for beam in beams
        for place, progress in enumerate(beam.progress)
        for token in progress.wanted
    ]
    scores_NV, device = view.scores_NV, view.scores_NV.device
    rows_I, tokens_I = torch.tensor(wanted, dtype=torch.long, device=device).view(-1, 2).unbind(1)
    rows_I = torch.cat([rows_I, torch.arange(len(scores_NV), device=device)])
    tokens_I = torch.cat([tokens_I, scores_NV.argmax(dim=-1)])
    columns = [rows_I, tokens_I, view.step.logp_NV[rows_I, tokens_I], scores_NV[rows_I, tokens_I]]
    if view.covered_N is not None:
        columns.append(view.covered_N[rows_I])
    owner = [(beam, place) for beam in beams for place in range(len(beam.live))]
    found: dict[int, list[Candidate]] = {beam.request: [] for beam in beams}
    for row, token, logp, score, *covered in torch.stack([c.double() for c in columns], dim=1).tolist():
        beam, parent = owner[int(row)]
        total = beam.live[parent].total + score
        if total > -math.inf:
            candidate = Candidate(parent, int(token), logp, score, total, sum(covered), total)
            found[beam.request].append(candidate)
    return [found[beam.request] for beam in beams]


class _Choice(NamedTuple):
    candidate: Candidate
    path: Hypothesis
    progress: PhraseProgress

    def fits(self, limit: int) -> bool:
        """Whether its phrases are all held, or there is room left for them."""
        room = 0 if self.path.finish_reason is not None else limit - len(self.path.tokens)
        return self.progress.needed <= room


class _Guided(BeamState):
    """A beam that knows how far each of its hypotheses has come with the phrases."""

    def __init__(
        self, options: BeamOptions, job: Job, request: int, phrases: Phrases, reader: Detokenizer | None
    ) -> None:
        super().__init__(options, job, request, Tree())
        self.phrases = phrases
        self.reader = reader
        """Reads a text that no stop string ends, where the model has text."""
        self.progress = [phrases.begin()]

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Share the places among the banks of those that can still hold every phrase."""
        choices = [self._choice(candidate) for candidate in candidates]
        fitting = [choice for choice in choices if choice.fits(self.job.limits[self.request])]
        # Nothing can hold every phrase any more: better a text without one than none at all.
        choices = fitting if fitting or self._complete() else choices
        ended = [choice for choice in self._shared(choices) if choice.path.finish_reason is not None]
        for candidate, path, progress in ended:
            self.end(path, candidate, len(progress.missing), unmet=progress.missing)
        alive = self._shared([choice for choice in choices if choice.path.finish_reason is None])
        self.live = [self.grown(choice.path, choice.candidate) for choice in alive]
        self.progress = [choice.progress for choice in alive]
        return [choice.candidate for choice in (*ended, *alive)]

    def _choice(self, candidate: Candidate) -> _Choice:
        path = self.extended(candidate)
        if path.finish_reason == "stop":
            return _Choice(candidate, path, self._left_standing(path))
        return _Choice(candidate, path, self.progress[candidate.parent].push(candidate.token))

    def _left_standing(self, path: Hypothesis) -> PhraseProgress:
        """How far a text has come whose end a stop string has cut off, with the tokens that still stand."""
        progress, length = self.phrases.begin(), len(path.detokenizer.close()) if path.detokenizer else 0
        reader = self.reader
        for token in path.tokens[:-1] if path.tokens[-1] in self.job.stop_ids else path.tokens:
            if reader is not None:
                reader = reader.push(token)
                if len(reader.close()) > length:
                    break
            progress = progress.push(token)
        return progress

    def consider(self, rising: bool) -> None:
        """Close the pool, if the options allow it and nothing in it lacks a phrase."""
        if not any(ended.missing for ended in self.pool):
            super().consider(rising)

    def _complete(self) -> bool:
        return len(self.pool) > 0 and self.pool[0].missing == 0

    def _shared(self, choices: Sequence[_Choice]) -> list[_Choice]:
        banks: list[list[_Choice]] = [[] for _ in range(self.phrases.size + 1)]
        for choice in choices:
            banks[self.phrases.size - choice.progress.needed].append(choice)
        places = allot(self.options.width, [len(bank) for bank in banks])
        kept = [choice for bank, some in zip(banks, places, strict=True) for choice in bank[:some]]
        return sorted(kept, key=lambda one: (-one.candidate.total, one.candidate.parent, one.candidate.token))


def _readers(model: StepModel, job: Job) -> list[Detokenizer | None]:
    """What reads the text of each prompt as the job does, stop strings left out."""
    text = model.tokenizer
    if text is None or not job.detokenizers:
        return [None] * len(job.prompts)
    return [text.detokenizer(after=None if job.is_encoder_decoder else prompt[-1]) for prompt in job.prompts]


def _check(phrases: Phrases, model: StepModel, job: Job) -> None:
    for phrase in phrases.phrases:
        within("phrases", phrase, model.vocab_size)
        if job.eos.intersection(phrase):
            raise ValueError(
                f"the phrase {phrase} holds an end-of-text token, after which nothing is generated. "
                "Leave that token out."
            )
    for request, limit in enumerate(job.limits):
        if phrases.size > limit:
            raise ValueError(
                f"the phrases have {phrases.size} tokens, and request {request} may generate {limit}. "
                "Raise max_new_tokens, shorten the prompt, or give fewer phrases."
            )
