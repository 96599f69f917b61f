"""Grammar: let a text be nothing but a beginning of what a grammar describes, and end where it is complete.

    q(x_t | x_{<t}) = p(x_t | x_{<t}) · [x_{<t} x_t begins a text of L] / Z_t,     Z_t = Σ of what is allowed

Willard & Louf 2023, §3 (the mask); Park et al. 2024, §3 (what it is not). The masks are llguidance's.
papers.bib: willard2023guided, park2024grammar, llguidance

L is given as one of: a JSON schema, a regular expression, a grammar in llguidance's Lark, or a list of texts.
The text reads from its first new token to its end, without the prompt. A limit of tokens, or a stop string,
may cut it: `finish` is "eos" where it is whole. A model that writes a text from right to left takes choices
only, as they read.

Sampling under a mask is not conditioning: q(x) = p(x) / Π Z_t, while p(x | L) ∝ p(x). Where a grammar
leaves little (Z small), q goes on as if that had been likely. What is missing is known: exp(Σ logps − Σ
scores) of an Output is Π Z_t, where Grammar is the only rule, and texts weighted (or drawn again) by it are
texts of p(x | L), the more exactly the more there are. A beam adds up log q, and so finds the best of q.

Put it last: rules after it see what it leaves, and a rule that brings another token back (ForcedBOS) leaves
the grammar. Where rules before it cut all that is allowed, the most probable allowed token of the model
stays; where the model itself rules all of them out, they are equally probable.
Differs from llguidance: white space in JSON is at most one `whitespace`, a regular expression, wherever it
may stand, since a small model likes to go on with spaces for ever; r"[ \n\t]*" leaves it free.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.arguments import items, set_fields, shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms.scores import cut, peaks
from unspool.interfaces import Step, StepModel, TokenizerLike


def parser() -> Any:
    """llguidance, which an extra installs."""
    try:
        import llguidance
    except ImportError as error:
        raise ImportError("Grammar needs the package llguidance: pip install 'unspool[grammar]'") from error
    return llguidance


class TokenBytes:
    """The tokens of one text, for models with `size` tokens whose texts end with `ends`.

    A model's tokens as the bytes that they add to a text, for a parser that reads bytes.

    Some tokenizers write the first token of a text otherwise than the later ones: words have a space before
    them, but not the first. For these every token is there twice, id V + i being token i at the beginning of
    a text.

    Where a tokenizer writes a space before every token but the first, no token can begin without one after a
    prompt: the space belongs to the prompt then, and a grammar does not see it.
    """

    def __init__(self, text: TokenizerLike, size: int, ends: frozenset[int]) -> None:
        self.text, self.size, self.ends = text, size, ends
        self._later = [text.piece(token) for token in range(size)]
        first = [text.piece(token, first=True) for token in range(size)]
        self.special = np.array([piece is None for piece in self._later])
        self.twice = first != self._later
        self._first = first if self.twice else []
        visible = [piece for piece in self._later if piece]
        self._spaced = self.twice and all(piece.startswith(b" ") for piece in visible)

    @cached_property
    def known(self) -> Any:
        """The same as llguidance keeps it: a trie."""
        llguidance = parser()
        wrapped = llguidance.TokenizerWrapper(_Tokens(self))
        return llguidance.LLTokenizer(wrapped, n_vocab=len(wrapped.tokens), eos_token=sorted(self.ends))

    def pieces(self) -> list[bytes]:
        """The bytes by id. Special tokens have their names; in there, no text spells them."""
        named = [
            self.text.show(token).encode() if piece is None and token < self.text.vocab_size else piece or b""
            for token, piece in enumerate(self._later)
        ]
        return named + [piece or b"" for piece in self._first]

    def begins(self, hypothesis: Hypothesis) -> bool:
        """Whether what follows the prompt is read as the beginning of a text."""
        if not self.twice:
            return False
        return self._spaced or not hypothesis.prompt or self.text.piece(hypothesis.prompt[-1]) is None

    def id_of(self, token: int, first: bool) -> int:
        """A token's id in `known`."""
        return token + self.size if first and not self.special[token] else token

    def allowed(self, bits: bytes, first: bool) -> NDArray[np.bool_]:
        """(V): which tokens a mask of `known` allows."""
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)
        later = mask[: self.size]
        return mask[self.size : 2 * self.size] | (later & self.special) if first else later


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, of: TokenBytes) -> None:
        self.tokens: Sequence[bytes] = of.pieces()
        self.special_token_ids = [*np.flatnonzero(of.special).tolist()]
        self.eos_token_id, self.bos_token_id = min(of.ends), of.text.bos_id
        self._text = of.text

    def __call__(self, text: str) -> list[int]:
        return self._text.encode(text)


_KNOWN: WeakKeyDictionary[TokenizerLike, dict[tuple[int, frozenset[int]], TokenBytes]] = WeakKeyDictionary()


def token_bytes(text: TokenizerLike, size: int, ends: frozenset[int]) -> TokenBytes:
    """The same for the same text: half a second's work for 50,000 tokens, done once."""
    found = _KNOWN.setdefault(text, {})
    if (size, ends) not in found:
        found[size, ends] = TokenBytes(text, size, ends)
    return found[size, ends]


# How far each hypothesis has come in a grammar.
#
# The state of the parser is a function of a hypothesis's tokens, and is kept only in order not to read them
# again: a hypothesis goes on from where its beginning was, on a copy, so that beams fork and drafts are taken
# back. What is not kept any more is read anew.


@dataclass
class Place:
    """A place in the grammar: llguidance's matcher, which is never moved on, and what may follow."""

    matcher: Any
    begins: bool
    """Whether the text has not begun yet."""
    allowed: NDArray[np.bool_] | None = None


HEADER = '%llguidance {"no_forcing": true}'
"""Where one text alone is possible, llguidance allows its usual tokens only: here every spelling counts."""
DEAD_END = "NoExtensionBias"
"""What llguidance says where something may follow, and no token is a beginning of it."""


def _fault(matcher: Any) -> str:
    """What is wrong, in a line: the state of the parser follows it."""
    first, *_ = matcher.get_error().splitlines() or ["unknown"]
    return str(first)


class Matchers:
    """Which tokens a grammar allows after each hypothesis."""

    def __init__(self, lark: str, tokens: TokenBytes, kept: int) -> None:
        self._tokens, self._kept = tokens, kept
        self._start = parser().LLMatcher(tokens.known, f"{HEADER}\n{lark}", log_level=0)
        if self._start.is_error():
            raise ValueError(f"the grammar cannot be used: {_fault(self._start)}")
        self._places: OrderedDict[tuple[bool, tuple[int, ...]], Place] = OrderedDict()

    def allowed(self, history: Sequence[Hypothesis]) -> NDArray[np.bool_]:
        """(N, V): which tokens may follow each hypothesis."""
        return np.stack([self._after(hypothesis) for hypothesis in history])

    def _after(self, hypothesis: Hypothesis) -> NDArray[np.bool_]:
        place = self._place(self._tokens.begins(hypothesis), hypothesis.tokens)
        if place.allowed is None:
            place.allowed = self._tokens.allowed(place.matcher.compute_bitmask(), place.begins)
            if place.matcher.is_error() or not place.allowed.any():
                self._refuse(place, hypothesis)
        return place.allowed

    def _refuse(self, place: Place, hypothesis: Hypothesis) -> None:
        after = f"after {self._tokens.text.decode(hypothesis.tokens)!r:.80}"
        if place.matcher.is_error() and _fault(place.matcher) != DEAD_END:
            raise ValueError(f"{after} the grammar cannot be followed further: {_fault(place.matcher)}")
        raise ValueError(
            f"{after} the grammar allows nothing that this model's vocabulary can write: give a grammar in "
            "its characters or words"
        )

    def _place(self, begins: bool, tokens: tuple[int, ...]) -> Place:
        found = self._places.get((begins, tokens))
        if found is None:
            before, rest = self._places.get((begins, tokens[:-1])), tokens[-1:]
            if before is None or not tokens:
                before, rest = Place(self._start, begins), tokens
            found = self._moved(before, rest)
            self._places[begins, tokens] = found
            if len(self._places) > self._kept:
                self._places.popitem(last=False)
        self._places.move_to_end((begins, tokens))
        return found

    def _moved(self, place: Place, tokens: Sequence[int]) -> Place:
        matcher, begins = place.matcher.deep_copy(), place.begins
        for token in tokens:
            if not matcher.consume_token(self._tokens.id_of(token, begins)):
                raise ValueError(
                    f"token {token} ({self._tokens.text.show(token)!r}) is none that the grammar allows "
                    "here: another rule put it there. Put Grammar last."
                )
            begins = begins and bool(self._tokens.special[token])
        return Place(matcher, begins)


class RightToLeftChoices:
    """Which tokens lead to one of several texts, if a model writes a text's last token first.

    What is still unwritten of a choice is a beginning of it, and the next token must be the end of that. The
    token that stands first in the text may be spelled otherwise than later ones (without its space).
    """

    def __init__(self, choices: Sequence[str], tokens: TokenBytes) -> None:
        self._choices = {choice.encode() for choice in choices}
        self._tokens = tokens
        self._later = [tokens.text.piece(token) for token in range(tokens.size)]
        self._first = [tokens.text.piece(token, first=True) for token in range(tokens.size)]
        self._later_ids, self._first_ids = _ids_by_piece(self._later), _ids_by_piece(self._first)

    def allowed(self, history: Sequence[Hypothesis]) -> NDArray[np.bool_]:
        """(N, V): which tokens may precede what each hypothesis has written."""
        return np.stack([self._before(hypothesis) for hypothesis in history])

    def _before(self, hypothesis: Hypothesis) -> NDArray[np.bool_]:
        unwritten, complete = self._left(hypothesis.tokens)
        found = np.zeros(self._tokens.size, dtype=bool)
        for beginning in unwritten:
            found[self._first_ids.get(beginning, [])] = True
            for start in range(len(beginning)):
                if start or not self._tokens.twice:
                    found[self._later_ids.get(beginning[start:], [])] = True
        if complete:
            found[[token for token in self._tokens.ends if token < self._tokens.size]] = True
        if not found.any():
            raise ValueError(
                f"before {self._tokens.text.decode(hypothesis.tokens)!r:.80} no token of the vocabulary "
                "leads to a choice: give choices in its characters or words"
            )
        return found

    def _left(self, tokens: Sequence[int]) -> tuple[set[bytes], bool]:
        """The beginnings of choices that are still unwritten, and whether a choice is complete."""
        unwritten, complete = self._choices - {b""}, b"" in self._choices
        for token in tokens:
            later, first = self._later[token], self._first[token]
            if later and first:
                complete = first in unwritten
                unwritten = {it[: -len(later)] for it in unwritten if it.endswith(later) and it != later}
        return unwritten, complete


def _ids_by_piece(pieces: Sequence[bytes | None]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for token, piece in enumerate(pieces):
        if piece:
            found.setdefault(piece, []).append(token)
    return found


WAYS = ("json_schema", "regex", "lark", "choices")
LEAST_KEPT = 256
"""Places in the grammar that are remembered however few rows there are."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Grammar:
    """Hold a text to a JSON schema, a regular expression, a grammar, or one of several texts."""

    json_schema: Mapping[str, Any] | str | bool | None = None
    """As a dict or as JSON; kept as JSON."""
    regex: str | None = None
    """The whole text matches it (Rust's syntax: neither look-around nor references back)."""
    lark: str | None = None
    """llguidance's Lark: a grammar whose rule `start` is the whole text."""
    choices: Sequence[str] | None = None
    """The text is one of these; kept as a tuple."""
    whitespace: str = " "
    """The white space of JSON, as a regular expression."""
    matchers: Matchers | RightToLeftChoices | None = field(default=None, init=False, compare=False)
    """Known when a search has begun."""

    def __post_init__(self) -> None:
        given = [way for way in WAYS if getattr(self, way) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "nothing"
            raise ValueError(f"Grammar was given {said}: give one of {', '.join(WAYS)}, by name.")
        if self.json_schema is not None:
            set_fields(self, json_schema=_as_json(self.json_schema))
        if self.choices is not None:
            set_fields(self, choices=_texts(self.choices))
        for name in ("regex", "lark", "whitespace"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"Grammar.{name} is {shown(value)}, but must be a string.")
        fault = parser().LLMatcher.validate_grammar(self.written())
        if fault:
            raise ValueError(f"Grammar.{given[0]} cannot be used: {' '.join(fault.split())}")

    def __repr__(self) -> str:
        said = [one for one in fields(self) if one.init and getattr(self, one.name) != one.default]
        return f"Grammar({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in said)})"

    def written(self) -> str:
        """The grammar in llguidance's Lark."""
        if self.lark is not None:
            return self.lark
        if self.json_schema is not None:
            schema = json.loads(str(self.json_schema))
            schema = {} if schema is True else {"enum": []} if schema is False else schema
            options = {**schema.get("x-guidance", {}), "whitespace_pattern": self.whitespace}
            return f"start: %json {json.dumps({**schema, 'x-guidance': options})}"
        regex = "|".join(map(_escaped, self.choices)) if self.choices is not None else self.regex
        return f"start: /{parser().regex_to_lark(regex)}/"

    def bind(self, model: StepModel, job: Job) -> Grammar:
        """With the model's tokens and what ends a text."""
        ends = job.eos | job.stop_ids
        if model.tokenizer is None:
            raise ValueError("Grammar needs the bytes of tokens, and so a tokenizer: this model has none.")
        if not ends:
            raise ValueError(
                "Grammar needs a token that ends the text where the grammar is complete, and this model "
                "names none: give stop_ids."
            )
        tokens = token_bytes(model.tokenizer, model.vocab_size, ends)
        ready = replace(self)
        if getattr(model.tokenizer, "right_to_left", False):
            if self.choices is None:
                raise ValueError(
                    "Grammar cannot hold a right-to-left model to a grammar that reads from left to right: "
                    "give choices, or take a left-to-right model."
                )
            set_fields(ready, matchers=RightToLeftChoices(self.choices, tokens))
        else:
            set_fields(ready, matchers=Matchers(self.written(), tokens, kept=max(LEAST_KEPT, 4 * job.rows)))
        return ready

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        if self.matchers is None:
            raise ValueError("Grammar has not met its model: use it in a search, or `prepare` it before.")
        allowed_NV = torch.from_numpy(self.matchers.allowed(history)).to(scores_NV.device)
        left_NV = cut(scores_NV, allowed_NV)
        empty_R = (left_NV.amax(dim=-1) == -torch.inf).nonzero()[:, 0]
        if len(empty_R):
            left_NV[empty_R] = _instead(step.logp_NV[empty_R], allowed_NV[empty_R]).to(left_NV.dtype)
        return left_NV


def _instead(logp_RV: Tensor, allowed_RV: Tensor) -> Tensor:
    """The most probable allowed token alone; where the model rules them all out, all of them alike."""
    free_RV = cut(logp_RV, allowed_RV)
    best_R1, token_R1 = free_RV.max(dim=-1, keepdim=True)
    only_RV = torch.full_like(free_RV, -torch.inf).scatter(1, token_R1, 0.0)
    alike_RV = cut(torch.zeros_like(free_RV), allowed_RV)
    return torch.where(best_R1 > -torch.inf, only_RV, alike_RV)


def _as_json(schema: Any) -> str:
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(found, Mapping | bool):
            raise TypeError("a schema is an object, true or false")
        return json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"Grammar.json_schema is {shown(schema)}, but must be a JSON schema, as a dict or as JSON text: "
            f"{error}."
        ) from error


def _texts(choices: Any) -> tuple[str, ...]:
    texts = items("Grammar.choices", choices, "a list of strings")
    if not texts:
        raise ValueError("Grammar.choices is empty: give at least one text.")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"Grammar.choices holds {shown(text)}, but must hold strings.")
    return texts


def _escaped(text: str) -> str:
    """A text as a regular expression that matches it alone, in Rust's syntax as in Python's."""
    return re.sub(r"([][.+*?(){}|^$\\#&~/-])", r"\\\1", text)


# What holds a text to a grammar: the model's tokens as bytes, and how far each hypothesis has come.
