"""`unspool chat`: a conversation with a model in the terminal, with commands to change the decoder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool import config
from unspool.cli.decoders import add_decoder_options, decoder_spec
from unspool.cli.models import load_model
from unspool.cli.output import check_output, print_json, print_message, terminal_text, write_pieces
from unspool.cli.parser import add_length_options, add_model_options, command, option

if TYPE_CHECKING:
    from unspool.decode.chat import Chat

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
COMMANDS = ("/decoder", "/help", "/quit", "/save", "/seed", "/undo")


@command(
    EXAMPLES,
    option("--system", metavar="TEXT", help="system message"),
    add_model_options,
    add_decoder_options,
    partial(add_length_options, new_tokens=config.MAX_CHAT_TOKENS),
    json="one JSON object per answer: role, content, finish_reason",
)
def chat(args: argparse.Namespace) -> int:
    """Chat with a model."""
    spec = decoder_spec(args)

    import unspool as us  # here, because it imports torch

    decoder = us.parse(spec)
    chat = us.Chat(load_model(args), decoder, args.system, args.seed, args.max_new_tokens)
    is_interactive = sys.stdin.isatty()
    for line in _input_lines(sys.stdin):
        command, _, rest = line.strip().partition(" ")
        if command == "/quit":
            return 0
        try:
            if command.startswith("/"):
                _execute(command, chat, rest.strip())
            elif command:
                _answer(chat, line.strip(), args.json)
        except (ValueError, TypeError, OSError) as error:
            if not is_interactive:  # a script must not continue after a mistake
                raise
            print_message(str(error))
        except KeyboardInterrupt:  # ends the answer
            if not is_interactive:
                raise
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


def _answer(chat: Chat, question: str, as_json: bool) -> None:
    if as_json:
        pieces = list(chat.stream(question))
        text = "".join(piece.text for piece in pieces)
        finish_reason = pieces[-1].finish_reason if pieces else None
        print_json({"role": "assistant", "content": text, "finish_reason": finish_reason})
    else:
        finish_reason = write_pieces(chat.stream(question), sys.stdout)
        if finish_reason in NOTES:
            print_message(NOTES[finish_reason])


def _execute(command: str, chat: Chat, argument: str) -> None:
    import unspool as us

    if command not in COMMANDS:
        raise ValueError(f"unknown command {command!r:.40}: {config.suggest(command, COMMANDS)}")
    if argument and command in ("/undo", "/help"):
        raise ValueError(f"{command} does not take an argument, found {argument!r:.40}")
    if command == "/decoder":
        if argument:
            chat.decoder = us.parse(argument)
        print(repr(chat.decoder))
    elif command == "/seed":
        if argument and not argument.isdecimal():
            raise ValueError(f"/seed takes a whole number, not {argument!r}")
        if argument:
            chat.seed = int(argument)
        print(chat.seed)
    elif command == "/undo":
        print(f"removed: {terminal_text(chat.undo(), sys.stdout)}")
    elif command == "/save":
        if not argument:
            raise ValueError("/save needs the name of a file")
        check_output(Path(argument))
        chat.save(argument)
        print(f"wrote {argument}")
    else:
        print(HELP)
