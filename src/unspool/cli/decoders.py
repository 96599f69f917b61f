"""Decoders as options: a specification, shortcuts that keep their order, or a TOML file of many."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool import config
from unspool.io import read_bounded

if TYPE_CHECKING:
    from unspool.cli.prompts import Prompt
    from unspool.interfaces import Decoder


class _Written(argparse.Action):
    """Notes a shortcut as the transform it stands for; the notes keep the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        namespace.transforms = [*namespace.transforms, f"{self.const}({values!r})"]


def add_decoder_options(parser: argparse.ArgumentParser) -> None:
    """The one decoder of `generate`."""
    group = parser.add_argument_group(
        "decoder",
        f"how the next token is chosen (default: {config.DECODER}). The order of the shortcuts counts.",
    )
    group.add_argument(
        "--decoder", metavar="SPEC", help='written as in Python: "Sample(TopK(40), Temperature(0.7))"'
    )
    group.add_argument("--greedy", action="store_true", help="the most probable token, always: Greedy()")
    shortcuts: tuple[tuple[str, str, type, str], ...] = (
        ("--temperature", "Temperature", float, "flatten (above 1) or sharpen (below 1) the distribution"),
        ("--top-k", "TopK", int, "keep the k most probable tokens"),
        ("--top-p", "TopP", float, "keep the smallest set of tokens that holds this probability"),
        (
            "--min-p",
            "MinP",
            float,
            "keep the tokens at least this probable, relative to the most probable one",
        ),
    )
    for flag, name, kind, text in shortcuts:
        group.add_argument(
            flag,
            action=_Written,
            const=name,
            type=kind,
            metavar="X",
            dest="transforms",
            default=(),
            help=text,
        )
    held = group.add_mutually_exclusive_group()
    held.add_argument("--regex", metavar="PATTERN", help="hold the text to a regular expression")
    held.add_argument(
        "--json-schema", type=Path, metavar="FILE", help="hold the text to JSON of the schema in this file"
    )


def add_several_decoders_option(parser: argparse.ArgumentParser) -> None:
    """The decoders of a comparison."""
    parser.add_argument(
        "--decoder",
        action="append",
        default=[],
        metavar="SPEC",
        help='a decoder, such as "Sample(TopP(0.9))"; may be given several times (default: a selection)',
    )


def decoder_spec(args: argparse.Namespace) -> str:
    """The decoder that the options ask for, as a specification that `unspool.parse` reads."""
    asked = [args.decoder is not None, args.greedy, bool(args.transforms)]
    if sum(asked) > 1:
        raise ValueError("give --decoder, --greedy or shortcuts such as --top-p, not several of them")
    held = _held(args)
    if args.decoder is not None:
        if held:
            raise ValueError(
                f"--decoder says all of how a token is chosen: write {held[0]:.60} into it, as its last rule"
            )
        return str(args.decoder)
    rules = [*args.transforms, *held]
    if args.greedy:
        return f"Greedy({', '.join(rules)})"
    return f"Sample({', '.join(rules)})" if rules else config.DECODER


def _held(args: argparse.Namespace) -> list[str]:
    """The grammar that the options ask for, as a specification."""
    if args.regex is not None:
        return [f"Grammar(regex={args.regex!r})"]
    if args.json_schema is None:
        return []
    try:
        schema = json.loads(read_bounded(args.json_schema).decode())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"--json-schema {args.json_schema} is not JSON: {error}") from None
    return [f"Grammar(json_schema={json.dumps(schema)!r})"]


def parse_all(spec: str, prompts: Sequence[Prompt], check: Callable[[Decoder], None]) -> dict[str, Decoder]:
    """The search of every specification, of the options and of lines, each found good by `check`."""
    import unspool as us

    wanted = {spec: ""}  # specification → the line that it comes from first
    for prompt in prompts:
        wanted.setdefault(prompt.settings.get("decoder", spec), f"{prompt.where}: ")
    if not any(prompt.settings.get("decoder", spec) == spec for prompt in prompts):
        del wanted[spec]
    decoders = {}
    for written, where in wanted.items():
        try:
            decoders[written] = us.parse(written)
            check(decoders[written])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}{error}") from error
    return decoders


def read_decoders(path: Path) -> dict[str, str]:
    """Named decoders from a TOML file: `[decoders]`, then `name = "specification"` a line."""
    try:
        found = tomllib.loads(read_bounded(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    decoders = found.pop("decoders", None)
    if found or not isinstance(decoders, dict) or not decoders:
        raise ValueError(
            f'{path}: expected one table, [decoders], of lines such as nucleus = "Sample(TopP(0.9))"'
        )
    for name, spec in decoders.items():
        if not isinstance(spec, str):
            raise ValueError(f"{path}: decoder {name!r} must be a string, found {spec!r}")
    return decoders


def name_decoders(specs: Sequence[str], file: Path | None, default: Sequence[str]) -> dict[str, str]:
    """The decoders to compare, by name; one that was not named is called by its specification."""
    named = {spec: spec for spec in specs}
    if file is not None:
        named |= read_decoders(file)
    return named or {spec: spec for spec in default}
