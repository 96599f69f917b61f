"""The command line: `unspool VERB …`, one file per verb."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from unspool.cli import compare, diagnose, generate, train
from unspool.cli.parser import Parser

__all__ = ["main"]

VERBS = {"compare": compare, "diagnose": diagnose, "generate": generate, "train": train}

BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # 128 + the signal's number, as shells count


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status says how it went (0 well, 2 bad input, 130 interrupted)."""
    debug = False
    try:
        args = _parser().parse_args(argv)
        debug = args.debug
        status: int = VERBS[args.verb].run(args)
        sys.stdout.flush()
    except SystemExit as exit_:  # argparse leaves this way: after --help, or after its own message
        return exit_.code if isinstance(exit_.code, int) else BAD_INPUT
    except KeyboardInterrupt:
        print("unspool: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`): say nothing, and keep Python from flushing into the void on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _explain(error)
    return status


def _explain(error: Exception) -> int:
    """One line on standard error, and the exit status that goes with it."""
    if isinstance(error, OSError) and error.filename is not None:
        print(f"unspool: {error.filename}: {error.strerror}", file=sys.stderr)
        return BAD_INPUT
    if isinstance(error, (ValueError, TypeError, OSError)):
        print(f"unspool: {error}", file=sys.stderr)
        return BAD_INPUT
    print(f"unspool: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
    return 1


def _parser() -> Parser:
    parser = Parser(
        prog="unspool",
        description="Unspool text from language models, with the decoder under control.",
        epilog='example:\n  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1',
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY, epilog=verb.EXAMPLES)
        verb.add_options(sub)
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser
