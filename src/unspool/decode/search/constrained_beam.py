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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch

from unspool.decode.arguments import phrases as checked_phrases, within
from unspool.decode.job import Frontier, Job
from unspool.decode.path import Path
from unspool.decode.search.bank_places import allot
from unspool.decode.search.beam_loop import View, run_beams
from unspool.decode.search.beam_options import BeamKeywords, BeamOptions, BeamSearch
from unspool.decode.search.beam_state import BeamState
from unspool.decode.search.candidates import Candidate, propose
from unspool.decode.search.phrases import PhraseProgress, Phrases
from unspool.decode.search.tree import Tree
from unspool.decode.transforms.spelling import spelled
from unspool.protocols import StepModel, TextWatch, Transform


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

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
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
    path: Path
    progress: PhraseProgress

    def fits(self, limit: int) -> bool:
        """Whether its phrases are all held, or there is room left for them."""
        room = 0 if self.path.finish is not None else limit - len(self.path.tokens)
        return self.progress.needed <= room


class _Guided(BeamState):
    """A beam that knows how far each of its hypotheses has come with the phrases."""

    def __init__(
        self, options: BeamOptions, job: Job, request: int, phrases: Phrases, reader: TextWatch | None
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
        ended = [choice for choice in self._shared(choices) if choice.path.finish is not None]
        for candidate, path, progress in ended:
            self.end(path, candidate, len(progress.missing), unmet=progress.missing)
        alive = self._shared([choice for choice in choices if choice.path.finish is None])
        self.live = [self.grown(choice.path, choice.candidate) for choice in alive]
        self.progress = [choice.progress for choice in alive]
        return [choice.candidate for choice in (*ended, *alive)]

    def _choice(self, candidate: Candidate) -> _Choice:
        path = self.extended(candidate)
        if path.finish == "stop":
            return _Choice(candidate, path, self._left_standing(path))
        return _Choice(candidate, path, self.progress[candidate.parent].push(candidate.token))

    def _left_standing(self, path: Path) -> PhraseProgress:
        """How far a text has come whose end a stop string has cut off, with the tokens that still stand."""
        progress, length = self.phrases.begin(), len(path.watch.close()) if path.watch else 0
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


def _readers(model: StepModel, job: Job) -> list[TextWatch | None]:
    """What reads the text of each prompt as the job does, stop strings left out."""
    text = model.text
    if text is None or not job.watches:
        return [None] * len(job.prompts)
    return [text.watch(after=None if job.answers else prompt[-1]) for prompt in job.prompts]


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
