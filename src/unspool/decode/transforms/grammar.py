"""Grammar: constrain a text to a JSON schema, a regular expression, a grammar or a list of choices.

    q(x_t | x_{<t}) = p(x_t | x_{<t}) · [x_{<t} x_t is a prefix of a text of L] / Z_t,     Z_t = allowed mass

Willard & Louf 2023, §3 (the mask); Park et al. 2024, §3 (its bias). llguidance computes the masks.
papers.bib: willard2023guided, park2024grammar, moskal2025llguidance

The grammar covers the generated text, without the prompt. A token limit or a stop string may cut the text: it
is complete if finish_reason is "eos". Right-to-left models are refused.

Sampling under a mask is not conditioning: q(x) = p(x) / Π Z_t, while p(x | L) ∝ p(x). exp(Σ logps − Σ scores)
of an Output is Π Z_t if Grammar is the only transform; texts weighted or resampled by it approximate
p(x | L). A beam sums log q.

Put it last, because a later transform that restores a token (ForcedBOS) breaks the grammar. If earlier
transforms cut all allowed tokens, the model's most probable allowed token stays; if the model gives all of
them zero probability, they are equally probable. Differs from llguidance: white space in JSON matches
`whitespace`, by default at most one space, because small models tend to repeat spaces; r"[ \n\t]*" allows
any.
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

from unspool.arguments import items, set_fields, shown
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms.scores import cut, peaks
from unspool.interfaces import Step, StepModel, TokenizerLike
from unspool.lazy import import_optional


def import_llguidance() -> Any:
    return import_optional("llguidance", "Grammar", "llguidance", "grammar")


MAX_LEXER_STATES = 50_000
"""Largest automaton of a grammar, about 2 kB per state; the other limits are those of llguidance."""


def parser_limits() -> Any:
    """Limits of size and time, because a grammar may come from anybody: beyond them it is refused."""
    return import_llguidance().LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)


class TokenBytes:
    """The bytes of a model's tokens, for llguidance.

    Some tokenizers write the first token of a text without its space. For these, every token has a second id,
    V + i for token i in the first position. If the tokenizer writes a space before every later token, the
    space after a prompt does not count as a part of the text.
    """

    def __init__(self, tokenizer: TokenizerLike, size: int, ends: frozenset[int]) -> None:
        self.tokenizer, self.size, self.ends = tokenizer, size, ends
        self._later = [tokenizer.piece(token) for token in range(size)]
        first = [tokenizer.piece(token, first=True) for token in range(size)]
        self.special = np.array([piece is None for piece in self._later])
        self.has_first_forms = first != self._later
        self._first = first if self.has_first_forms else []
        visible = [piece for piece in self._later if piece]
        self._spaced = self.has_first_forms and all(piece.startswith(b" ") for piece in visible)

    @cached_property
    def llguidance_tokenizer(self) -> Any:
        llguidance = import_llguidance()
        wrapped = llguidance.TokenizerWrapper(_Tokens(self))
        return llguidance.LLTokenizer(wrapped, n_vocab=len(wrapped.tokens), eos_token=sorted(self.ends))

    def pieces(self) -> list[bytes]:
        """The bytes of every id; special tokens have their names, which text cannot match."""
        named = [
            self.tokenizer.show(token).encode()
            if piece is None and token < self.tokenizer.vocab_size
            else piece or b""
            for token, piece in enumerate(self._later)
        ]
        return named + [piece or b"" for piece in self._first]

    def is_first(self, hypothesis: Hypothesis) -> bool:
        """True if the first new token has the form of a first token."""
        if not self.has_first_forms:
            return False
        return self._spaced or not hypothesis.prompt or self.tokenizer.piece(hypothesis.prompt[-1]) is None

    def id_of(self, token: int, first: bool) -> int:
        return token + self.size if first and not self.special[token] else token

    def allowed(self, bits: bytes, first: bool) -> NDArray[np.bool_]:
        """(V): the tokens that a mask of llguidance allows."""
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)
        later = mask[: self.size]
        return mask[self.size : 2 * self.size] | (later & self.special) if first else later


class _Tokens:
    """The tokenizer interface of llguidance."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self.tokens: Sequence[bytes] = token_bytes.pieces()
        self.special_token_ids = [*np.flatnonzero(token_bytes.special).tolist()]
        self.eos_token_id, self.bos_token_id = min(token_bytes.ends), token_bytes.tokenizer.bos_id
        self._tokenizer = token_bytes.tokenizer

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)


_TOKEN_BYTES: WeakKeyDictionary[TokenizerLike, dict[tuple[int, frozenset[int]], TokenBytes]] = (
    WeakKeyDictionary()
)


def token_bytes(tokenizer: TokenizerLike, size: int, ends: frozenset[int]) -> TokenBytes:
    """Cached TokenBytes: half a second of work for 50,000 tokens."""
    cached = _TOKEN_BYTES.setdefault(tokenizer, {})
    if (size, ends) not in cached:
        cached[size, ends] = TokenBytes(tokenizer, size, ends)
    return cached[size, ends]


@dataclass
class ParserState:
    """The state after some tokens: an llguidance matcher, which never advances, and the allowed tokens."""

    matcher: Any
    is_first: bool
    """Whether the next token is the first of the text."""
    allowed: NDArray[np.bool_] | None = None


HEADER = '%llguidance {"no_forcing": true}'
"""Allow every tokenization, even if the text is determined."""
DEAD_END = "NoExtensionBias"
"""The error of llguidance if no token can continue the text."""


def _error_line(matcher: Any) -> str:
    """The first line of the error; the state of the parser follows it."""
    first, *_ = matcher.get_error().splitlines() or ["unknown"]
    return str(first)


class Matchers:
    """The tokens that a grammar allows after each hypothesis, with a cache of parser states."""

    def __init__(self, lark: str, tokens: TokenBytes, max_states: int) -> None:
        self._tokens, self._max_states = tokens, max_states
        self._start = import_llguidance().LLMatcher(
            tokens.llguidance_tokenizer, f"{HEADER}\n{lark}", log_level=0, limits=parser_limits()
        )
        if self._start.is_error():
            raise ValueError(f"the grammar cannot be used: {_error_line(self._start)}")
        self._states: OrderedDict[tuple[bool, tuple[int, ...]], ParserState] = OrderedDict()

    def allowed(self, history: Sequence[Hypothesis]) -> NDArray[np.bool_]:
        """(N, V): the tokens that may follow each hypothesis."""
        return np.stack([self._after(hypothesis) for hypothesis in history])

    def _after(self, hypothesis: Hypothesis) -> NDArray[np.bool_]:
        state = self._state(self._tokens.is_first(hypothesis), hypothesis.tokens)
        if state.allowed is None:
            state.allowed = self._tokens.allowed(state.matcher.compute_bitmask(), state.is_first)
        if not state.matcher.is_error() and state.allowed.any():
            return state.allowed
        after = f"after {self._tokens.tokenizer.decode(hypothesis.tokens)!r:.80}"
        if state.matcher.is_error() and _error_line(state.matcher) != DEAD_END:
            raise ValueError(f"{after} the grammar cannot be continued: {_error_line(state.matcher)}")
        raise ValueError(
            f"{after} no token of the vocabulary matches the grammar: "
            "write it in characters of the vocabulary"
        )

    def _state(self, is_first: bool, tokens: tuple[int, ...]) -> ParserState:
        state = self._states.get((is_first, tokens))
        if state is None:
            before, rest = self._states.get((is_first, tokens[:-1])), tokens[-1:]
            if before is None or not tokens:
                before, rest = ParserState(self._start, is_first), tokens
            state = self._advance(before, rest)
            self._states[is_first, tokens] = state
            if len(self._states) > self._max_states:
                self._states.popitem(last=False)
        self._states.move_to_end((is_first, tokens))
        return state

    def _advance(self, state: ParserState, tokens: Sequence[int]) -> ParserState:
        matcher, is_first = state.matcher.deep_copy(), state.is_first
        for token in tokens:
            if not matcher.consume_token(self._tokens.id_of(token, is_first)):
                name = self._tokens.tokenizer.show(token)
                raise ValueError(
                    f"the grammar does not allow token {token} ({name!r}) here: "
                    "put Grammar after all other transforms"
                )
            is_first = is_first and bool(self._tokens.special[token])
        return ParserState(matcher, is_first)


KINDS = ("json_schema", "regex", "lark", "choices")
MIN_CACHED_STATES = 256


@dataclass(frozen=True, kw_only=True, repr=False)
class Grammar:
    """Grammar(json_schema=…): constrain the text to a JSON schema, a regex, a Lark grammar or choices."""

    json_schema: Mapping[str, Any] | str | bool | None = None
    """A dict or a JSON string; stored as JSON."""
    regex: str | None = None
    """A regular expression for the whole text, in Rust syntax (no look-around, no back-references)."""
    lark: str | None = None
    """A grammar in llguidance's Lark; the rule `start` is the whole text."""
    choices: Sequence[str] | None = None
    whitespace: str = " "
    """White space in JSON, as a regular expression."""
    matchers: Matchers | None = field(default=None, init=False, compare=False)
    """Set by `bind`."""

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "nothing"
            raise ValueError(f"Grammar was given {names}: give one of {', '.join(KINDS)}, by name.")
        if self.json_schema is not None:
            set_fields(self, json_schema=_as_json(self.json_schema))
        if self.choices is not None:
            set_fields(self, choices=_as_texts(self.choices))
        for name in ("regex", "lark", "whitespace"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"Grammar.{name} is {shown(value)}, but must be a string.")
        error = import_llguidance().LLMatcher.validate_grammar(self.to_lark(), limits=parser_limits())
        if error:
            raise ValueError(f"Grammar.{given[0]} cannot be used: {' '.join(error.split()):.200}")

    def __repr__(self) -> str:
        given = [one for one in fields(self) if one.init and getattr(self, one.name) != one.default]
        return f"Grammar({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in given)})"

    def to_lark(self) -> str:
        if self.lark is not None:
            return self.lark
        if self.json_schema is not None:
            schema = json.loads(str(self.json_schema))
            schema = {} if schema is True else {"enum": []} if schema is False else schema
            options = {**schema.get("x-guidance", {}), "whitespace_pattern": self.whitespace}
            return f"start: %json {json.dumps({**schema, 'x-guidance': options})}"
        regex = "|".join(map(_escape, self.choices)) if self.choices is not None else self.regex
        return f"start: /{import_llguidance().regex_to_lark(regex)}/"

    def bind(self, model: StepModel, job: Job) -> Grammar:
        """Bind the tokens of the model and the end tokens of the job."""
        ends = job.eos | job.stop_ids
        if model.tokenizer is None:
            raise ValueError("Grammar needs a tokenizer, which this model does not have")
        if not ends:
            raise ValueError(
                "Grammar needs an end-of-text token, which this model does not name: give stop_ids"
            )
        if getattr(model.tokenizer, "right_to_left", False):
            raise ValueError("Grammar matches a text from its beginning: use a left-to-right model")
        tokens = token_bytes(model.tokenizer, model.vocab_size, ends)
        bound = replace(self)
        max_states = max(MIN_CACHED_STATES, 4 * job.rows)
        set_fields(bound, matchers=Matchers(self.to_lark(), tokens, max_states))
        return bound

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        if self.matchers is None:
            raise ValueError(
                "Grammar is not bound to a model: use it in a decoder, or call bind(model, job) first"
            )
        allowed_NV = torch.from_numpy(self.matchers.allowed(history)).to(scores_NV.device)
        masked_NV = cut(scores_NV, allowed_NV)
        empty_R = (masked_NV.amax(dim=-1) == -torch.inf).nonzero()[:, 0]
        if len(empty_R):
            masked_NV[empty_R] = _fallback(step.logp_NV[empty_R], allowed_NV[empty_R]).to(masked_NV.dtype)
        return masked_NV


def _fallback(logp_RV: Tensor, allowed_RV: Tensor) -> Tensor:
    """Leave the most probable allowed token; all of them if the model gives them zero probability."""
    masked_RV = cut(logp_RV, allowed_RV)
    best_R1, token_R1 = masked_RV.max(dim=-1, keepdim=True)
    one_token_RV = torch.full_like(masked_RV, -torch.inf).scatter(1, token_R1, 0.0)
    uniform_RV = cut(torch.zeros_like(masked_RV), allowed_RV)
    return torch.where(best_R1 > -torch.inf, one_token_RV, uniform_RV)


def _as_json(schema: Any) -> str:
    try:
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(parsed, Mapping | bool):
            raise TypeError("a schema is an object, true or false")
        return json.dumps(parsed, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"Grammar.json_schema is {shown(schema)}, but must be a JSON schema, as a dict or as JSON text: "
            f"{error}."
        ) from error


def _as_texts(choices: Any) -> tuple[str, ...]:
    texts = items("Grammar.choices", choices, "a list of strings")
    if not texts:
        raise ValueError("Grammar.choices is empty: give at least one text.")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"Grammar.choices holds {shown(text)}, but must hold strings.")
    return texts


def _escape(text: str) -> str:
    """Escape a text for regular expressions of Rust and Python."""
    return re.sub(r"([][.+*?(){}|^$\\#&~/-])", r"\\\1", text)
