"""The verbs of the command and the parser that knows them all."""

from __future__ import annotations

from types import ModuleType

from unspool.cli import chat, compare, compile, diagnose, evaluate, generate, lab, predict, rate, serve, train  # noqa: A004
from unspool.cli.parser import Parser

VERBS: dict[str, ModuleType] = {
    "chat": chat,
    "compare": compare,
    "compile": compile,
    "diagnose": diagnose,
    "evaluate": evaluate,
    "generate": generate,
    "lab": lab,
    "predict": predict,
    "rate": rate,
    "serve": serve,
    "train": train,
}


def command_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="unspool",
        description="Unspool text from language models, with the decoder under control.",
        epilog='example:\n  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1',
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY, epilog=verb.EXAMPLES)
        verb.add_options(sub)
        sub.add_argument(
            "--trust-code",
            action="store_true",
            help="import Python code that a decoder, recipe or run folder names: my_package:MySampler",
        )
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
