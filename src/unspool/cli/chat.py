"""`unspool chat`: a conversation with a model in the terminal, with commands to change the decoder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool import config
from unspool.cli.decoders import add_decoder_options, decoder_spec
from unspool.cli.models import load_model
from unspool.cli.output import check_output, print_json, print_message, terminal_text
from unspool.cli.parser import Command, add_length_options, add_model_options

if TYPE_CHECKING:
    from unspool.decode.chat import Chat
    from unspool.decode.output import Piece

EXAMPLES = """examples:
  unspool chat
  unspool chat --system "Answer in one sentence." --decoder "Sample(MinP(0.1))" --seed 1
  printf 'Why is the sky blue?\\nAnd at night?\\n' | unspool chat --greedy

commands during the chat:
  /decoder [SPEC]     show or change the decoder: /decoder Sample(TopP(0.9))
  /seed [N]           show or change the seed
  /undo               remove the last turn
  /save FILE          write the conversation as JSON
  /help               show these commands
  /quit               leave (or Ctrl-D)
Ctrl-C ends an answer; at the prompt it ends the chat. An answer that repeats itself in a loop is
stopped.
"""
HELP = EXAMPLES.partition("commands during the chat:\n")[2].rstrip()
NOTES = {"loop": "stopped: the answer repeated itself", "length": "stopped at --max-new-tokens"}
"""Finish reason → a note about an unfinished answer."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_model_options(parser)
    add_decoder_options(parser)
    add_length_options(parser, new_tokens=config.MAX_CHAT_TOKENS)


def _run(args: argparse.Namespace) -> int:
    check_output(None)
    spec = decoder_spec(args)

    import unspool as us  # here, because it imports torch

    decoder = us.parse(spec)
    chat = us.Chat(load_model(args), decoder, args.system, args.seed, args.max_new_tokens)
    for line in _input_lines(sys.stdin):
        command, _, rest = line.strip().partition(" ")
        if command == "/quit":
            return 0
        try:
            if command.startswith("/"):
                _command(command)(chat, rest.strip())
            elif command and args.json:
                pieces = list(chat.stream(line.strip()))
                text = "".join(piece.text for piece in pieces)
                finish_reason = pieces[-1].finish_reason if pieces else None
                print_json({"role": "assistant", "content": text, "finish_reason": finish_reason})
            elif command:
                _print_answer(chat.stream(line.strip()), sys.stdout)
        except (ValueError, TypeError, OSError) as error:
            if not sys.stdin.isatty():  # a script must not continue after a mistake
                raise
            print_message(str(error))
    return 0


def _input_lines(file: TextIO) -> Iterator[str]:
    while True:
        if file.isatty():
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = file.readline()
        if not line:
            return
        yield line


def _print_answer(pieces: Iterator[Piece], file: TextIO) -> None:
    finish_reason = None
    try:
        for piece in pieces:
            file.write(terminal_text(piece.text, file))
            file.flush()
            finish_reason = piece.finish_reason
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    finally:
        file.write("\n")
        file.flush()
    if finish_reason in NOTES:
        print_message(NOTES[finish_reason])


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


def _undo(chat: Chat, argument: str) -> None:
    _check_empty("/undo", argument)
    print(f"removed: {terminal_text(chat.undo(), sys.stdout)}")


def _save(chat: Chat, path: str) -> None:
    if not path:
        raise ValueError("/save needs the name of a file")
    check_output(Path(path))
    chat.save(path)
    print(f"wrote {path}")


def _help(chat: Chat, argument: str) -> None:  # noqa: ARG001
    _check_empty("/help", argument)
    print(HELP)


def _check_empty(command: str, argument: str) -> None:
    if argument:
        raise ValueError(f"{command} does not take an argument, found {argument!r:.40}")


COMMANDS: dict[str, Callable[[Chat, str], None]] = {
    "/decoder": _decoder,
    "/help": _help,
    "/save": _save,
    "/seed": _seed,
    "/undo": _undo,
}


def _command(name: str) -> Callable[[Chat, str], None]:
    if name not in COMMANDS:
        raise ValueError(f"unknown command {name!r:.40}: {config.suggest(name, [*COMMANDS, '/quit'])}")
    return COMMANDS[name]


COMMAND = Command(
    "Chat with a model.",
    EXAMPLES,
    _add_options,
    _run,
    "one JSON object per answer: role, content, finish_reason",
)
