"""The command line: `unspool COMMAND …`, one module per command."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

__all__ = ["main"]

FAILED, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141  # the last two: 128 + the number of the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 success, 1 failure, 2 bad input, 130 interrupted, 141 broken pipe.
    """
    try:
        # Imports happen inside: Ctrl-C during an import must be handled, too.
        from unspool.cli.output import exit_during_imports, print_warning, safe_streams
        from unspool.errors import Note

        with safe_streams(), exit_during_imports(), warnings.catch_warnings():
            warnings.showwarning = print_warning
            warnings.simplefilter("default", Note)
            return _run(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:  # print() would use standard output instead
            print("unspool: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    debug = False
    try:
        from unspool.cli.commands import command_parser
        from unspool.plugins import allow_code

        try:
            args = command_parser().parse_args(argv)
        except SystemExit as error:  # argparse exits after --help, --version and its own error messages
            status = error.code if isinstance(error.code, int) else BAD_INPUT
        else:
            debug = args.debug
            with allow_code(args.trust_code):
                status = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe (`| head`)
        return BROKEN_PIPE
    except Exception as error:
        if debug:
            from unspool.cli.output import print_traceback

            print_traceback()
        return _report(error)
    return status


def _report(error: Exception) -> int:
    """Print one line about the error and return the exit status."""
    from unspool.cli.output import print_message

    if isinstance(error, OSError) and error.strerror:
        print_message(error.strerror if error.filename is None else f"{error.filename}: {error.strerror}")
        return BAD_INPUT
    if isinstance(error, UnicodeEncodeError):  # input is checked when it is read, so this is the output
        print_message(
            f"U+{ord(error.object[error.start]):04X} cannot be written in {error.encoding}: "
            "set PYTHONIOENCODING=utf-8, or give --output PATH"
        )
        return BAD_INPUT
    if isinstance(error, (ValueError, TypeError, OSError, MemoryError)):
        print_message(str(error) or f"{type(error).__name__} (--debug shows the traceback)")
        return BAD_INPUT
    print_message(f"{type(error).__name__}: {error} (--debug shows the traceback)")
    return FAILED
