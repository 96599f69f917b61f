"""Argument parsing that all commands share: one-line errors, number types, common options, subcommands."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from unspool import config
from unspool.cli.output import Result, present, print_message

MODEL_HELP = (
    "a built-in model (bible, bible-weak, dates), an installed model package (smollm2), a run folder, a "
    "Hugging Face folder or id, or a .gguf file"
)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors and "did you mean"; examples keep their line breaks."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # A new flag must never change the meaning of an abbreviated old one.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Report unknown arguments of a subcommand with its own --help; argparse names the main command."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown)}")
        return known, unknown

    def _hint(self, unknown: list[str]) -> str:
        """Advice about the first unknown option."""
        name = next((argument.partition("=")[0] for argument in unknown if argument.startswith("-")), None)
        if name is None and not self._get_positional_actions():
            return " (this command takes only options)"
        if name is None:
            return " (quote arguments that contain spaces)"
        for action in self._get_positional_actions():
            word = str(action.metavar or action.dest)
            if word.lower() == name.lstrip("-").lower():
                return f" (write {word} without {name})"
        same = [option for option in self._option_string_actions if option.lstrip("-") == name.lstrip("-")]
        near = same or get_close_matches(name, self._option_string_actions, 1)
        return f" (did you mean {near[0]}?)" if near else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Report an unknown subcommand with the nearest ones instead of a list of all."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise argparse.ArgumentError(None, config.unknown(str(value), action.choices, "command"))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, with the command that shows the help; exit with status 2."""
        print_message(f"{message}{' See' if message.endswith('?') else '; see'} {self.prog} --help")
        self.exit(2)


AddOptions = Callable[[Any], Any]
"""Adds options to a parser, or one option to a parser or a group of options."""


@dataclass(frozen=True)
class Command:
    """A command: its help texts, its options, and the function that runs it."""

    summary: str
    examples: str
    """Shown under the options: example calls, then explanations."""
    options: tuple[AddOptions, ...]
    run: Callable[[argparse.Namespace], int]
    json: str | None
    """What --json prints; None for a command without results."""
    figure: bool


def command(
    examples: str, *options: AddOptions, json: str | None = "one JSON object", figure: bool = False
) -> Callable[[Callable[[argparse.Namespace], Result | int]], Command]:
    """Make a command of a function that returns a Result or an exit status; its docstring is the summary."""

    def decorate(function: Callable[[argparse.Namespace], Result | int]) -> Command:
        return Command(function.__doc__ or "", examples, options, partial(present, function), json, figure)

    return decorate


@dataclass(frozen=True)
class CommandGroup:
    """A command that consists of subcommands: `unspool GROUP SUBCOMMAND …`."""

    summary: str
    commands: Mapping[str, Command]

    @property
    def examples(self) -> str:
        """The example calls of all subcommands."""
        lines = (line for command in self.commands.values() for line in command.examples.splitlines())
        return "examples:\n" + "\n".join(line for line in lines if line.startswith("  unspool "))


def add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command | CommandGroup], metavar: str
) -> None:
    """Add a subparser for each command; `args.run` is then the function of the chosen one."""
    subparsers = parser.add_subparsers(
        dest=metavar.lower(), metavar=metavar, required=True, parser_class=Parser
    )
    for name, command in commands.items():
        sub = subparsers.add_parser(
            name, help=command.summary, description=command.summary, epilog=command.examples
        )
        add_global_options(sub, default=argparse.SUPPRESS)  # keep a flag that is given before the subcommand
        if isinstance(command, CommandGroup):
            add_commands(sub, command.commands, "SUBCOMMAND")
        else:
            for add_options in command.options:
                add_options(sub)
            if command.figure:
                path_option("--figure", "draw a figure: .svg, .png or .pdf")(sub)
            if command.json is not None:
                flag("--json", f"print {command.json}")(sub)
            sub.set_defaults(run=command.run)
            sub.usage = _short_usage(sub)


def add_global_options(parser: argparse.ArgumentParser, default: Any = False) -> None:
    flag("--debug", "show the traceback of an error", default=default)(parser)
    flag(
        "--trust-code",
        "import Python code that a decoder, recipe or run folder names: my_package:MySampler",
        default=default,
    )(parser)


def _short_usage(parser: argparse.ArgumentParser) -> str:
    """The usage line: required and positional arguments, and [options] for all others."""
    words = []
    for action in parser._actions:
        name = str(action.metavar or action.dest)
        if action.option_strings:
            if action.required:
                words.append(f"{action.option_strings[-1]} {name}")
        else:
            words.append(
                {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(
                    str(action.nargs), name
                )
            )
    return " ".join(["%(prog)s", "[options]", *words])


# ---- argument types


def _at_least(minimum: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {minimum} or more")
    return number


positive, natural = partial(_at_least, 1), partial(_at_least, 0)


def device_name(text: str) -> str:
    """The name of a device, except torch's "meta", whose tensors do not have values."""
    if text.partition(":")[0] == "meta":
        raise argparse.ArgumentTypeError("tensors on 'meta' do not have values; use cpu")
    return text


# ---- options


def option(*names: str, **settings: Any) -> AddOptions:
    """One option or argument of a command, as for `add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def flag(name: str, text: str, **settings: Any) -> AddOptions:
    return option(name, action="store_true", help=text, **settings)


def path_option(name: str, text: str, metavar: str = "FILE", **settings: Any) -> AddOptions:
    return option(name, type=Path, metavar=metavar, help=text, **settings)


def repeated(name: str, metavar: str, text: str, **settings: Any) -> AddOptions:
    """An option whose values are collected in a list."""
    text = f"{text}; may be repeated"
    return option(name, action="append", default=[], metavar=metavar, help=text, **settings)


def number(name: str, default: int | Sequence[int] | None, text: str, *, minimum: int = 1) -> AddOptions:
    """An option that takes a whole number, or several if its default is a list."""
    is_list = isinstance(default, Sequence)
    shown = " ".join(map(str, default)) if isinstance(default, Sequence) else default
    return option(
        name,
        type=positive if minimum else natural,
        default=default,
        nargs="+" if is_list else None,
        metavar="N",
        help=text if default is None else f"{text} (default: {shown})",
    )


def add_running_options(parser: argparse._ActionsContainer, *, dtype: bool = False) -> None:
    """--device, --weights, --engine, and if asked for --dtype."""
    parser.add_argument(
        "--device",
        type=device_name,
        default="cpu",
        metavar="NAME",
        help="device of the model: cpu, cuda, … (default: %(default)s)",
    )
    parser.add_argument(
        "--weights",
        metavar="FORMAT",
        help="format of the weights in memory: float32; stored (as in the file); or int8 (a quarter of the "
        "memory at nearly the same probabilities). Default: stored for GGUF files, float32 for others. With "
        "float32 and stored, truncating the file while the model is in use crashes the process",
    )
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="torch, compiled, transformers or llama.cpp (default: the fastest one that is available)",
    )
    if dtype:
        parser.add_argument(
            "--dtype",
            default="float32",
            metavar="NAME",
            help="number format of the computation: float32, bfloat16 or float16; the last two need less "
            "memory and round log-probabilities (default: %(default)s)",
        )


def add_model_argument(parser: argparse._ActionsContainer) -> None:
    """The positional MODEL of commands that measure a model, with --device, --weights and --engine."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_running_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="NAME",
        help=f"{MODEL_HELP} (default: {config.MODEL} if it is installed, otherwise {config.SECOND_MODEL})",
    )
    add_running_options(group, dtype=True)


def add_length_options(parser: argparse.ArgumentParser, new_tokens: int) -> None:
    group = parser.add_argument_group("generation")
    number("--max-new-tokens", new_tokens, "generate at most N tokens")(group)
    number("--seed", None, "the same seed gives the same text (default: random)", minimum=0)(group)


def add_seed_option(parser: argparse.ArgumentParser) -> None:
    number("--seed", 0, "random seed", minimum=0)(parser)


def output_option(
    help_text: str = "write to this file instead of standard output",
    metavar: str = "FILE",
    *,
    required: bool = False,
) -> AddOptions:
    return option("-o", "--output", type=Path, required=required, metavar=metavar, help=help_text)


def seed_of(args: argparse.Namespace) -> int:
    """The given seed, or a random one for the whole command."""
    return secrets.randbits(32) if args.seed is None else int(args.seed)
