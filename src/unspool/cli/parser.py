"""What every verb's options share: how errors are said, which numbers are taken, where the model is."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, NoReturn

from unspool import config
from unspool.cli.output import tell


class Parser(argparse.ArgumentParser):
    """argparse with this command's error line, and examples that keep their line breaks."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # A new flag must never change what an abbreviated old one means.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse what a verb does not know with the verb's own help; argparse would with the command's."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown)}")
        return found, unknown

    def _hint(self, unknown: list[str]) -> str:
        """What was perhaps meant by the first of the options that nobody knows."""
        name = next((it.partition("=")[0] for it in unknown if it.startswith("-")), None)
        if name is None:
            return " (what has spaces in it is written in quotes)"
        places = {str(it.metavar or it.dest).upper() for it in self._actions if not it.option_strings}
        if name.lstrip("-").upper() in places:
            return f" ({name.lstrip('-').upper()} is given without a name here)"
        short = [it for it in self._option_string_actions if it.lstrip("-") == name.lstrip("-")]
        near = short or get_close_matches(name, self._option_string_actions, 1)
        return f" (did you mean {near[0]}?)" if near else ""

    def error(self, message: str) -> NoReturn:
        """Say what was wrong and where to read more; leave with status 2."""
        tell(f"{message}; see {self.prog} --help")
        self.exit(2)


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """A whole number of 0 or more."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
    return number


def device_name(text: str) -> str:
    """A device, but for the one that holds no numbers: a model can be loaded there, and say nothing."""
    if text.partition(":")[0] == "meta":
        raise argparse.ArgumentTypeError(f"{text!r} holds no numbers to compute with; take cpu")
    return text


def add_running_options(parser: argparse._ActionsContainer) -> None:
    """Where the model runs, how its weights are kept, and what computes."""
    parser.add_argument(
        "--device",
        type=device_name,
        default="cpu",
        metavar="NAME",
        help="where it runs: cpu, cuda, … (default: %(default)s)",
    )
    parser.add_argument(
        "--weights",
        metavar="HOW",
        help="how its weights are kept: float32; stored, packed as in their file and used from there; or "
        "int8, a quarter of the memory at nearly the same probabilities (default: float32). All but int8 may "
        "map the file into memory: truncating it while the model is in use crashes the process",
    )
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="what computes: torch, compiled, transformers or llama.cpp (default: the best that is there)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which model, where it runs, and in which numbers."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="a built-in model (bible, bible-weak, dates), an installed model package (smollm2), a run "
        f"folder, a Hugging Face folder or id, or a file.gguf (default: {config.MODEL} where it is "
        f"installed, else {config.SECOND_MODEL})",
    )
    add_running_options(group)
    group.add_argument(
        "--dtype",
        default="float32",
        metavar="NAME",
        help="its numbers: float32; or bfloat16 or float16, which take less memory and round "
        "log-probabilities (default: %(default)s)",
    )


def add_length_options(parser: argparse.ArgumentParser, new_tokens: int) -> None:
    """How much is generated, and from which randomness."""
    group = parser.add_argument_group("generation")
    group.add_argument(
        "--max-new-tokens",
        type=positive,
        default=new_tokens,
        metavar="N",
        help="the most tokens to generate (default: %(default)s)",
    )
    group.add_argument(
        "--seed", type=natural, metavar="N", help="the same seed gives the same text (default: a new one)"
    )


def seed_of(args: argparse.Namespace) -> int:
    """The seed that was asked for, or one for the whole command."""
    return secrets.randbits(32) if args.seed is None else int(args.seed)


# Verbs that have verbs of their own: `unspool diagnose WHAT …`, `unspool rate WHAT …`.


def add_subverbs(parser: argparse.ArgumentParser, verbs: Mapping[str, ModuleType], dest: str) -> None:
    """One sub-command for each; a module has the parts of a verb: SUMMARY, EXAMPLES, add_options and run."""
    subs = parser.add_subparsers(dest=dest, metavar="WHAT", required=True, parser_class=Parser)
    for name, verb in verbs.items():
        sub = subs.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY, epilog=verb.EXAMPLES)
        verb.add_options(sub)
        # SUPPRESS: the flag after the sub-command must not undo the one before it.
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )


def all_examples(verbs: Mapping[str, ModuleType]) -> str:
    """The examples of each, without what is explained after them."""
    lines = (line for verb in verbs.values() for line in verb.EXAMPLES.splitlines())
    return "examples:\n" + "\n".join(line for line in lines if line.startswith("  unspool "))
