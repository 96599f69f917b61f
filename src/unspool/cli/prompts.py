"""Prompts from the command line, from standard input, or from a file of lines or JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.config import unknown
from unspool.data.records import PROMPT, Record, json_record, read_records
from unspool.errors import check_surrogates
from unspool.io import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from unspool.interfaces import StepModel, TokenizerLike


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _string(value: Any) -> bool:
    return isinstance(value, str)


def _strings(value: Any) -> bool:
    return _string(value) or (isinstance(value, list) and all(map(_string, value)))


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole(0), value))


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "chat": (_flag, "true or false"),
    "decoder": (_string, 'a string such as "Sample(TopP(0.9))"'),
    "max_new_tokens": (_whole(1), "a whole number of 1 or more"),
    "n": (_whole(1), "a whole number of 1 or more"),
    "seed": (_whole(0), "a whole number of 0 or more"),
    "stop": (_strings, "a string or a list of strings"),
    "stop_approximate_loops": (_flag, "true or false"),
    "stop_ids": (_ids, "a list of token ids"),
    "stop_loops": (_flag, "true or false"),
    "system": (_string, "a string"),
}
"""Setting → whether a value is one, and what it should be."""


def read_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the keys of a line, each of the right kind.

    What one line of a JSON file may say besides its prompt, and what it must look like.

        {"prompt": "Once upon a time", "seed": 3, "max_new_tokens": 40, "decoder": "Sample(TopP(0.9))"}

    A setting of a line goes before the option of the same name; one that is null counts as not given.
    """
    found = {}
    for name, (is_right, expected) in CHECKS.items():
        value = record.get(name)
        if value is None:
            continue
        if not is_right(value):
            raise ValueError(f'"{name}" must be {expected}, found {value!r:.60}')
        found[name] = value
    return found


@dataclass(frozen=True)
class Prompt:
    """A text to continue, or the messages of a conversation to answer."""

    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    where: str = ""
    """Its file and line."""
    id: Any = None
    """What its line calls it: given back with the answers."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its line asks for, besides what the options ask of all."""

    def render(self, text: TokenizerLike | None, *, chat: bool = False, system: str | None = None) -> str:
        """The one string that the model reads."""
        messages = self.conversation(chat=chat, system=system)
        if not messages:
            return self.text
        if text is None:
            raise ValueError("this model has no tokenizer, so it cannot be given a conversation")
        return text.chat(messages)

    def conversation(self, *, chat: bool = False, system: str | None = None) -> tuple[Mapping[str, str], ...]:
        """The messages that the model is given; none if it is given the text as it is."""
        system = self.settings.get("system", system)
        messages = self.messages
        if not messages:
            if not self.settings.get("chat", chat or system is not None):
                return ()
            messages = ({"role": "user", "content": self.text},)
        if system is not None and messages[0]["role"] != "system":
            messages = ({"role": "system", "content": system}, *messages)
        return messages


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    """The prompt and its other sources, and how it is put to the model."""
    parser.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help='the text to continue; "-" or nothing reads standard input. It may spell special tokens '
        "(<|im_start|>); with --chat, and in messages, they are plain text",
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help=f"many prompts: one a line, blank lines skipped; in a .jsonl file, {PROMPT} a line; in a .tsv "
        "file, the first column",
    )
    parser.add_argument(
        "--chat", action="store_true", help="put the prompt as a user's message to a chat model"
    )
    parser.add_argument("--system", metavar="TEXT", help="the system message of that chat (implies --chat)")


def read_prompts(args: argparse.Namespace, *, settings: bool = False) -> list[Prompt]:
    """Every prompt that the options name. All of them are checked before the first is used.

    `settings` says whether a line of JSON may have settings of its own.
    """
    if args.system is not None:
        check_surrogates(args.system, "--system")
    if args.file is not None:
        if args.prompt is not None:
            raise ValueError("give a PROMPT or --file, not both")
        return read_file(args.file, settings=settings)
    if args.prompt is not None and args.prompt != "-":
        return [Prompt(check_surrogates(args.prompt, "the prompt"))]
    if args.prompt is None and sys.stdin.isatty():
        raise ValueError("there is no prompt: give one as PROMPT, pipe one in, or name a file with --file")
    try:
        content = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ValueError(
                f"standard input has more than {MAX_TEXT_BYTES >> 20} MiB, the most that is read"
            )
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: {error}") from None
    if not text.strip():
        raise ValueError("the prompt on standard input is empty; write one, or give it as PROMPT")
    return [Prompt(text.removesuffix("\n").removesuffix("\r"))]


def read_file(path: Path, *, settings: bool = False) -> list[Prompt]:
    """The prompts of a file, as `unspool.data.records` reads all files."""
    prompts = [_prompt(record, settings) for record in read_records(path)]
    if not prompts:
        raise ValueError(f"{path}: there is no prompt in this file")
    return prompts


def prompt_of_line(line: str, where: str) -> Prompt:
    """The prompt of one line of JSON, with its settings."""
    return _prompt(json_record(line, where), settings=True)


def _prompt(record: Record, settings: bool) -> Prompt:
    said = record.prompt()
    try:
        known = ["prompt", "messages", "source", "target", "id", *(CHECKS if settings else ())]
        for key in record.fields:
            if key not in known:
                raise ValueError(unknown(key, known, "key of a line"))
        found = read_settings(record.fields)
        for name in ("stop", "system"):
            for text in _list(found.get(name, ())):
                check_surrogates(text, f'"{name}"')
    except ValueError as error:
        raise ValueError(f"{record.where}: {error}") from None
    shared: dict[str, Any] = {"where": record.where, "id": record.fields.get("id"), "settings": found}
    return Prompt(said, **shared) if isinstance(said, str) else Prompt(messages=said, **shared)


def _list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def render_all(
    prompts: Sequence[Prompt], model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]
) -> list[str]:
    """Every prompt as the string that the model reads; one that it cannot read fails before any work."""
    return [render(prompt, model, args, options) for prompt in prompts]


def render(prompt: Prompt, model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]) -> str:
    """The prompt as the string that the model reads, tried with these options of `generate`."""
    from unspool.decode.prompts import reading
    from unspool.decode.run import Run

    try:
        text = prompt.render(model.tokenizer, chat=args.chat, system=args.system)
        read, _ = reading(model)
        if read is not None and not read.encode(text):
            raise ValueError(_empty(read))
        Run(model, [text], **options)
    except ValueError as error:
        raise ValueError(f"{prompt.where}: {error}" if prompt.where else str(error)) from error
    return text


def _empty(text: TokenizerLike) -> str:
    """What to do about a prompt of no tokens; where the first token of a text can be written, how."""
    first = "" if text.bos_id is None else text.show(text.bos_id)
    if first and text.encode(first) == [text.bos_id]:
        return (
            f"the prompt is empty: write something, or {first!r}, which begins a text, to begin from nothing"
        )
    return "the prompt is empty: write at least one word to go on from"
