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
may stand, since a small model likes to go on with spaces for ever; r"[ \\n\\t]*" leaves it free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import items, keep, shown
from unspool.decode.grammar.matchers import Matchers, RightToLeftChoices
from unspool.decode.grammar.token_bytes import parser, token_bytes
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import cut, peaks
from unspool.protocols import Step, StepModel

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
            keep(self, json_schema=_as_json(self.json_schema))
        if self.choices is not None:
            keep(self, choices=_texts(self.choices))
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

    def prepare(self, model: StepModel, job: Job) -> Grammar:
        """With the model's tokens and what ends a text."""
        ends = job.eos | job.stop_ids
        if model.text is None:
            raise ValueError("Grammar needs the bytes of tokens, and so a tokenizer: this model has none.")
        if not ends:
            raise ValueError(
                "Grammar needs a token that ends the text where the grammar is complete, and this model "
                "names none: give stop_ids."
            )
        tokens = token_bytes(model.text, model.vocab_size, ends)
        ready = replace(self)
        if getattr(model.text, "right_to_left", False):
            if self.choices is None:
                raise ValueError(
                    "Grammar cannot hold a right-to-left model to a grammar that reads from left to right: "
                    "give choices, or take a left-to-right model."
                )
            keep(ready, matchers=RightToLeftChoices(self.choices, tokens))
        else:
            keep(ready, matchers=Matchers(self.written(), tokens, kept=max(LEAST_KEPT, 4 * job.rows)))
        return ready

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
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
