"""Constrained beam search: beam search whose texts all contain the given phrases.

    Y_t = ∪_{c=0…C} best_{w_c} { y ∈ candidates :  y has c of the C phrase tokens },   Σ_c w_c = w

Candidates are the best continuations of the beam, every hypothesis with each token that continues one of its
phrases, and every hypothesis with its best token. The width is divided among banks of hypotheses that have
equally many phrase tokens. Only a text that contains every phrase may end.
Post & Vilar 2018, §3 (dynamic beam allocation). papers.bib: post2018fast

A phrase is a tuple of token ids, or a string that the model's tokenizer encodes (mind the space before a
word); its tokens must be consecutive in the generated text. `notes["unmet"]` of every text lists the phrases
that it lacks: none, unless the model or a transform gives a token of a phrase zero probability, or a stop
string cuts a phrase.
Differs from the paper: a hypothesis whose missing phrases do not fit into the limit is dropped at once, so
that a limit of as many tokens as the phrases have is always enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import torch

from unspool.arguments import phrases as checked_phrases, within
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.search.beam import BeamScores, run_beams
from unspool.decode.search.beam_state import BeamKeywords, BeamOptions, BeamSearch, BeamState
from unspool.decode.search.candidates import Candidate
from unspool.decode.transforms.penalties import encode_words
from unspool.interfaces import Detokenizer, StepModel, Transform

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class PhraseProgress:
    """The part of the required phrases that a text contains. Immutable, because beams fork.

    A phrase is complete if its tokens are consecutive in the text. Of an incomplete phrase, the longest
    prefix that the text ends with counts as done. The number of tokens

        needed = Σ_{p incomplete} |p| − max_{p incomplete} done(p)

    always suffices to complete the text, and the next token of the phrase with the most done lowers it.
    """

    phrases: tuple[Phrase, ...]
    done: tuple[int, ...]
    """Tokens done of each phrase; its length if it is complete."""

    @classmethod
    def begin(cls, phrases: Iterable[Sequence[int]]) -> PhraseProgress:
        """The progress of an empty text; phrases that another one contains are left out."""
        distinct = list(dict.fromkeys(tuple(phrase) for phrase in phrases))
        kept = [p for p in distinct if not any(p != other and _inside(p, other) for other in distinct)]
        return cls(tuple(kept), (0,) * len(kept))

    @property
    def size(self) -> int:
        return sum(map(len, self.phrases))

    @property
    def missing(self) -> tuple[Phrase, ...]:
        return tuple(phrase for phrase, done in self._open())

    @property
    def needed(self) -> int:
        """A number of tokens that suffices to complete all phrases."""
        rest = self._open()
        return sum(len(phrase) for phrase, _ in rest) - max((done for _, done in rest), default=0)

    @property
    def wanted(self) -> list[int]:
        """The tokens that continue a phrase, in the order of the phrases."""
        return list(dict.fromkeys(phrase[done] for phrase, done in self._open()))

    def push(self, token: int) -> PhraseProgress:
        moved = []
        for phrase, done in zip(self.phrases, self.done, strict=True):
            if done < len(phrase):
                ending = (*phrase[:done], token)
                matches = (k for k in range(done + 1, -1, -1) if ending[done + 1 - k :] == phrase[:k])
                done = next(matches)
            moved.append(done)
        return PhraseProgress(self.phrases, tuple(moved))

    def _open(self) -> list[tuple[Phrase, int]]:
        pairs = zip(self.phrases, self.done, strict=True)
        return [(phrase, done) for phrase, done in pairs if done < len(phrase)]


def _inside(short: Phrase, long: Phrase) -> bool:
    return any(long[at : at + len(short)] == short for at in range(len(long) - len(short) + 1))


def allocate_banks(width: int, sizes: Sequence[int]) -> list[int]:
    """Number of the sizes[c] hypotheses of each bank to keep: `width` in total, or all if there are fewer.

        w_c = ⌊w / B⌋,  the remainder to the last bank;  unused places of bank c to banks c±1, c±2, …

    Post & Vilar 2018, §3 (bank allocation and adjustment). papers.bib: post2018fast

    Differs from the paper: of two equally near neighbours, the one with more phrase tokens is first.
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
    """ConstrainedBeam(5, (" Paris", (12, 7))): the best texts that contain " Paris" and tokens 12, 7."""

    phrases: tuple[str | tuple[int, ...], ...]

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
        options = self.options.bind(model, job)
        start = PhraseProgress.begin(encode_words(phrase, model, "phrase") for phrase in self.phrases)
        _check(start, model, job)
        requests = [
            [_PhraseBeam(options, job, place, start, reader)]
            for place, reader in enumerate(_readers(model, job))
        ]
        return run_beams(model, job, requests, grow)


def grow(inputs: BeamScores, beams: Sequence[_PhraseBeam]) -> None:
    """Give every beam its best candidates, those that continue phrases, and the best of each row."""
    required = _phrase_candidates(inputs, beams)
    for beam, candidates, more in zip(beams, inputs.propose(beams), required, strict=True):
        # Candidates with the same parent and token are equal.
        merged = {(candidate.parent, candidate.token): candidate for candidate in (*candidates, *more)}
        beam.take(
            sorted(
                merged.values(), key=lambda candidate: (-candidate.total, candidate.parent, candidate.token)
            )
        )


def _phrase_candidates(inputs: BeamScores, beams: Sequence[_PhraseBeam]) -> list[list[Candidate]]:
    """Every live hypothesis with each token that continues a phrase, and with its most probable token."""
    wanted = [
        (beam.first_row + place, token)
        for beam in beams
        for place, progress in enumerate(beam.progress)
        for token in progress.wanted
    ]
    scores_NV, device = inputs.scores_NV, inputs.scores_NV.device
    rows_I, tokens_I = torch.tensor(wanted, dtype=torch.long, device=device).view(-1, 2).unbind(1)
    rows_I = torch.cat([rows_I, torch.arange(len(scores_NV), device=device)])
    tokens_I = torch.cat([tokens_I, scores_NV.argmax(dim=-1)])
    columns = [rows_I, tokens_I, inputs.step.logp_NV[rows_I, tokens_I], scores_NV[rows_I, tokens_I]]
    if inputs.covered_N is not None:
        columns.append(inputs.covered_N[rows_I])
    owner = [(beam, place) for beam in beams for place in range(len(beam.live))]
    candidates: dict[int, list[Candidate]] = {beam.request: [] for beam in beams}
    for row, token, logp, score, *covered in torch.stack([c.double() for c in columns], dim=1).tolist():
        beam, parent = owner[int(row)]
        total = beam.live[parent].total + score
        if total > -math.inf:
            candidate = Candidate(parent, int(token), logp, score, total, sum(covered), total)
            candidates[beam.request].append(candidate)
    return [candidates[beam.request] for beam in beams]


class _Choice(NamedTuple):
    candidate: Candidate
    hypothesis: Hypothesis
    progress: PhraseProgress

    def fits(self, limit: int) -> bool:
        """True if the limit leaves enough tokens for the missing phrases."""
        room = 0 if self.hypothesis.finish_reason is not None else limit - len(self.hypothesis.tokens)
        return self.progress.needed <= room


class _PhraseBeam(BeamState):
    """A beam that tracks the phrase progress of each hypothesis."""

    def __init__(
        self, options: BeamOptions, job: Job, request: int, start: PhraseProgress, reader: Detokenizer | None
    ) -> None:
        super().__init__(options, job, request)
        self.start = start
        self.reader = reader
        """Detokenizer without stop strings, if the model has a tokenizer."""
        self.progress = [start]

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Divide the width among the banks of hypotheses that can still contain every phrase."""
        choices = [self._choice(candidate) for candidate in candidates]
        fitting = [choice for choice in choices if choice.fits(self.job.limits[self.request])]
        # If no candidate can contain every phrase, return texts without some of them.
        has_complete_text = len(self.pool) > 0 and self.pool[0].missing == 0
        choices = fitting if fitting or has_complete_text else choices
        ended = [choice for choice in self._shared(choices) if choice.hypothesis.finish_reason is not None]
        for candidate, hypothesis, progress in ended:
            self.end(hypothesis, candidate, len(progress.missing), unmet=progress.missing)
        alive = self._shared([choice for choice in choices if choice.hypothesis.finish_reason is None])
        self.live = [self.live_item(choice.hypothesis, choice.candidate) for choice in alive]
        self.progress = [choice.progress for choice in alive]
        return [choice.candidate for choice in (*ended, *alive)]

    def _choice(self, candidate: Candidate) -> _Choice:
        hypothesis = self.extend(candidate)
        if hypothesis.finish_reason == "stop":
            return _Choice(candidate, hypothesis, self._progress_of_shown(hypothesis))
        return _Choice(candidate, hypothesis, self.progress[candidate.parent].push(candidate.token))

    def _progress_of_shown(self, hypothesis: Hypothesis) -> PhraseProgress:
        """The progress of a text that a stop string has cut, from the tokens that are still shown."""
        progress, reader, tokens = self.start, self.reader, hypothesis.tokens
        length = len(hypothesis.detokenizer.close()) if hypothesis.detokenizer else 0
        for token in tokens[:-1] if tokens[-1] in self.job.stop_ids else tokens:
            if reader is not None:
                reader = reader.push(token)
                if len(reader.close()) > length:
                    break
            progress = progress.push(token)
        return progress

    def close_if_done(self, rising: bool) -> None:
        """Close the pool if the stop rule allows it and every text in it contains all phrases."""
        if not any(ended.missing for ended in self.pool):
            super().close_if_done(rising)

    def _shared(self, choices: Sequence[_Choice]) -> list[_Choice]:
        banks: list[list[_Choice]] = [[] for _ in range(self.start.size + 1)]
        for choice in choices:
            banks[self.start.size - choice.progress.needed].append(choice)
        places = allocate_banks(self.options.width, [len(bank) for bank in banks])
        kept = [choice for bank, some in zip(banks, places, strict=True) for choice in bank[:some]]
        return sorted(kept, key=lambda one: (-one.candidate.total, one.candidate.parent, one.candidate.token))


def _readers(model: StepModel, job: Job) -> list[Detokenizer | None]:
    text = model.tokenizer
    if text is None or not job.detokenizers:
        return [None] * len(job.prompts)
    return [text.detokenizer(after=None if job.is_encoder_decoder else prompt[-1]) for prompt in job.prompts]


def _check(start: PhraseProgress, model: StepModel, job: Job) -> None:
    for phrase in start.phrases:
        within("phrases", phrase, model.vocab_size)
        if job.eos.intersection(phrase):
            raise ValueError(
                f"the phrase {phrase} contains an end-of-text token, which ends the text: leave it out"
            )
    for request, limit in enumerate(job.limits):
        if start.size > limit:
            raise ValueError(
                f"the phrases have {start.size} tokens but request {request} may generate {limit}: "
                "increase max_new_tokens, shorten the prompt, or give fewer phrases"
            )
