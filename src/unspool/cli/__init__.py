"""The command line: `unspool VERB …`, one file per verb."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

__all__ = ["main"]

BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # 128 + the signal's number, as shells count


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status says how it went (0 well, 2 bad input, 130 interrupted)."""
    try:
        # Nothing is imported before: Ctrl-C must find somebody who answers it.
        from unspool.cli.output import leaving_imports_at_once, tell_warning, usable_streams

        with usable_streams(), leaving_imports_at_once(), warnings.catch_warnings():
            warnings.showwarning = tell_warning
            return _run(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:  # print() would take standard output instead
            print("unspool: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    debug = False
    try:
        from unspool.cli.verbs import VERBS, command_parser
        from unspool.plugins import allow_code

        try:
            args = command_parser().parse_args(argv)
        except SystemExit as left:  # argparse leaves this way: after --help, or after its own message
            status = left.code if isinstance(left.code, int) else BAD_INPUT
        else:
            debug = args.debug
            with allow_code(args.trust_code):
                status = VERBS[args.verb].run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone (`| head`): there is nobody to tell
        return BROKEN_PIPE
    except Exception as error:
        if debug:
            from unspool.cli.output import tell_traceback

            tell_traceback()
        return _explain(error)
    return status


def _explain(error: Exception) -> int:
    """One line on standard error, and the exit status that goes with it."""
    from unspool.cli.output import tell

    if isinstance(error, OSError) and error.filename is not None:
        tell(f"{error.filename}: {error.strerror}")
        return BAD_INPUT
    if isinstance(error, UnicodeEncodeError):  # all text that is read has been found good
        tell(
            f"U+{ord(error.object[error.start]):04X} cannot be written in {error.encoding}: "
            "set PYTHONIOENCODING=utf-8, or give --output PATH"
        )
        return BAD_INPUT
    if isinstance(error, (ValueError, TypeError, OSError, MemoryError)):
        tell(str(error) or f"{type(error).__name__} (--debug shows where)")
        return BAD_INPUT
    tell(f"{type(error).__name__}: {error} (--debug shows where)")
    return 1
