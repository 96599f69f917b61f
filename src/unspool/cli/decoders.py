"""Decoder options: --decoder, shortcuts such as --top-p, grammars, and files of named decoders."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool import config
from unspool.cli.parser import flag, path_option
from unspool.io import read_bounded

if TYPE_CHECKING:
    from unspool.cli.prompts import Prompt
    from unspool.interfaces import Decoder

PENALTIES: tuple[tuple[str, str, type, str], ...] = (
    (
        "--repetition-penalty",
        "RepetitionPenalty",
        float,
        "lower the logits of tokens that occurred by this factor (1.1 … 1.3)",
    ),
    ("--no-repeat-ngram", "NoRepeatNgram", int, "never repeat a sequence of N tokens"),
    ("--thinking-budget", "ThinkingBudget", int, "close the reasoning, <think> … </think>, after N tokens"),
)
SAMPLING: tuple[tuple[str, str, type, str], ...] = (
    (
        "--temperature",
        "Temperature",
        float,
        "flatten (above 1) or sharpen (below 1) the distribution; 0 is --greedy",
    ),
    ("--top-k", "TopK", int, "keep the N most probable tokens"),
    ("--top-p", "TopP", float, "keep the smallest set of tokens whose total probability is at least X"),
    ("--min-p", "MinP", float, "keep tokens with at least this share of the highest probability"),
)
"""Option, transform, type of its value, and help."""
ZERO_TEMPERATURE = "Temperature(0.0)"


def _transform(name: str, kind: type) -> Callable[[str], str]:
    """Return the type of a shortcut, which makes a transform of its value."""

    def convert(text: str) -> str:
        return f"{name}({kind(text)!r})"

    convert.__name__ = kind.__name__  # for argparse's message: invalid float value
    return convert


def add_decoder_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "decoder", f"default: {config.DECODER}; shortcuts apply in the order in which they are given"
    )
    group.add_argument(
        "--decoder", metavar="SPEC", help='any decoder, as in Python: "Sample(TopK(40), Temperature(0.7))"'
    )
    flag("--greedy", "always the most probable token: Greedy()")(group)
    shared: dict[str, Any] = {"dest": "transforms", "default": []}
    for name, transform, kind, text in (*SAMPLING, *PENALTIES):
        metavar = "N" if kind is int else "X"
        convert = _transform(transform, kind)
        group.add_argument(name, action="append", type=convert, metavar=metavar, help=text, **shared)
    dry_help = "penalise tokens that would continue a repetition: DRY()"
    group.add_argument("--dry", action="append_const", const="DRY()", help=dry_help, **shared)
    grammar = group.add_mutually_exclusive_group()
    grammar.add_argument("--regex", metavar="PATTERN", help="only texts that match this regular expression")
    path_option("--json-schema", "only JSON that is valid for the schema in this file")(grammar)


def add_decoders_option(parser: argparse.ArgumentParser) -> None:
    """--decoder of a comparison, which may be repeated."""
    parser.add_argument(
        "--decoder",
        action="append",
        metavar="SPEC",
        help='a decoder, such as "Sample(TopP(0.9))"; may be repeated (default: a selection)',
    )


def decoder_spec(args: argparse.Namespace) -> str:
    """The decoder that the options describe, as a string for `unspool.parse`."""
    if args.decoder is not None:
        if args.greedy or args.transforms:
            raise ValueError("give --decoder, or --greedy and shortcuts such as --top-p, not both")
        for name in ("regex", "json_schema"):
            if getattr(args, name) is not None:
                raise ValueError(
                    f"--decoder excludes --{name.replace('_', '-')}: write the grammar in the decoder, as in "
                    f"\"Greedy(Grammar({name}='…'))\""
                )
        return str(args.decoder)
    transforms = [*args.transforms, *_grammar(args)]
    if args.greedy:
        for flag, name, _, _ in SAMPLING:
            if any(transform.startswith(f"{name}(") for transform in transforms):
                raise ValueError(f"--greedy ignores {flag}: leave one of them out")
        return f"Greedy({', '.join(transforms)})"
    if ZERO_TEMPERATURE in transforms:  # as in `unspool.generate`
        return f"Greedy({', '.join(rule for rule in transforms if rule != ZERO_TEMPERATURE)})"
    return f"Sample({', '.join(transforms)})" if transforms else config.DECODER


def _grammar(args: argparse.Namespace) -> list[str]:
    if args.regex is not None:
        return [f"Grammar(regex={args.regex!r})"]
    if args.json_schema is None:
        return []
    try:
        schema = json.loads(read_bounded(args.json_schema).decode())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"--json-schema {args.json_schema} is not JSON: {error}") from None
    return [f"Grammar(json_schema={json.dumps(schema)!r})"]


def parse_decoders(
    spec: str, prompts: Sequence[Prompt], check: Callable[[Decoder], None]
) -> dict[str, Decoder]:
    """Spec → decoder, for the option and for every line of the prompts; each must pass `check`."""
    import unspool as us

    origins: dict[str, str] = {}  # spec → the first line that uses it
    for prompt in prompts:
        own = prompt.settings.get("decoder")
        origins.setdefault(own or spec, f"{prompt.where}: " if own else "")
    decoders = {}
    for text, origin in origins.items():
        try:
            decoders[text] = us.parse(text)
            check(decoders[text])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{origin}{error}") from error
    return decoders
