"""`unspool chat`: a conversation with a model, its answers streamed, its decoder changed on the way."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool import config
from unspool.cli.decoders import add_decoder_options, decoder_spec
from unspool.cli.models import load_speaker
from unspool.cli.output import check_output, shown, tell
from unspool.cli.parser import add_length_options, add_model_options

if TYPE_CHECKING:
    from unspool.decode.chat import Chat
    from unspool.decode.output import Piece

SUMMARY = "Talk with a model."
EXAMPLES = """examples:
  unspool chat
  unspool chat --system "Answer in one sentence." --decoder "Sample(MinP(0.1))" --seed 1
  printf 'Why is the sky blue?\\nAnd at night?\\n' | unspool chat --greedy

while you talk:
  /decoder            show the decoder; /decoder SPEC takes another: /decoder Sample(TopP(0.9))
  /seed               show the seed; /seed N takes another
  /undo               take the last turn back
  /save PATH          write the conversation as JSON
  /help               show these
  /quit               leave, as Ctrl-D does
Ctrl-C ends an answer, or leaves where there is none. An answer that goes round in circles is stopped.
"""
HELP = EXAMPLES.partition("while you talk:\n")[2].rstrip()
NOTES = {
    "loop": "it went round in circles, and was stopped",
    "length": "cut at --max-new-tokens",
}
"""What is said of an answer that did not end by itself."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool chat` takes."""
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the first turn")
    add_model_options(parser)
    add_decoder_options(parser)
    add_length_options(parser, new_tokens=config.MAX_CHAT_TOKENS)


def run(args: argparse.Namespace) -> int:
    """Answer line after line, until there is none."""
    check_output(None)
    spec = decoder_spec(args)

    import unspool as us  # only now: the command line itself must not wait for torch

    decoder = us.parse(spec)
    chat = us.Chat(load_speaker(args), decoder, args.system, args.seed, args.max_new_tokens)
    for line in _lines(sys.stdin):
        command, _, rest = line.strip().partition(" ")
        if command == "/quit":
            return 0
        try:
            if command.startswith("/"):
                _command(command)(chat, rest.strip())
            elif command:
                _answer(chat.stream(line.strip()), sys.stdout)
        except (ValueError, TypeError, OSError) as error:
            if not sys.stdin.isatty():  # a script must not go on as if it had been understood
                raise
            tell(str(error))
    return 0


def _lines(file: TextIO) -> Iterator[str]:
    """What is said, line by line; a terminal is asked for each."""
    while True:
        if file.isatty():
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = file.readline()
        if not line:
            return
        yield line


def _answer(pieces: Iterator[Piece], file: TextIO) -> None:
    finish = None
    try:
        for piece in pieces:
            file.write(shown(piece.text, file))
            file.flush()
            finish = piece.finish_reason
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    finally:
        file.write("\n")
        file.flush()
    if finish in NOTES:
        tell(NOTES[finish])


def _decoder(chat: Chat, spec: str) -> None:
    import unspool as us

    if spec:
        chat.decoder = us.parse(spec)
    print(repr(chat.decoder))


def _seed(chat: Chat, number: str) -> None:
    if number:
        if not number.isdecimal():
            raise ValueError(f"/seed takes a whole number, not {number!r}")
        chat.seed = int(number)
    print(chat.seed)


def _undo(chat: Chat, nothing: str) -> None:
    _no_more("/undo", nothing)
    print(f"taken back: {shown(chat.undo(), sys.stdout)}")


def _save(chat: Chat, path: str) -> None:
    if not path:
        raise ValueError("/save takes the name of a file")
    check_output(Path(path))
    chat.save(path)
    print(f"written to {path}")


def _help(chat: Chat, nothing: str) -> None:  # noqa: ARG001
    _no_more("/help", nothing)
    print(HELP)


def _no_more(command: str, rest: str) -> None:
    if rest:
        raise ValueError(f"{command} takes nothing behind it, and found {rest!r:.40}")


COMMANDS: dict[str, Callable[[Chat, str], None]] = {
    "/decoder": _decoder,
    "/help": _help,
    "/save": _save,
    "/seed": _seed,
    "/undo": _undo,
}


def _command(name: str) -> Callable[[Chat, str], None]:
    if name not in COMMANDS:
        raise ValueError(f"{name!r:.40} is unknown: choose from {', '.join([*COMMANDS, '/quit'])}")
    return COMMANDS[name]
