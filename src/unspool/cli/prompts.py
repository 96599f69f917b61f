"""Prompts from the command line, standard input, or a file of lines or JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.parser import flag, path_option
from unspool.config import convert, unknown
from unspool.data.records import PROMPT, Record, json_record, read_records, split_lines
from unspool.errors import check_surrogates
from unspool.io import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from unspool.interfaces import StepModel, TokenizerLike


SETTINGS: dict[str, Any] = {
    "chat": bool,
    "decoder": str,
    "max_new_tokens": int,
    "n": int,
    "seed": int,
    "stop": str | list[str],
    "stop_approximate_loops": bool,
    "stop_ids": list[int],
    "stop_loops": bool,
    "system": str,
}
"""Setting of a JSON line → its type. It overrides the command-line option; null means not given."""


@dataclass(frozen=True)
class Prompt:
    """A text to continue, or the messages of a chat."""

    text: str = ""
    messages: tuple[Mapping[str, str], ...] = ()
    where: str = ""
    """File and line, for error messages."""
    id: Any = None
    """The "id" of its JSON line, which is copied to the output."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_blank: bool = False
    """Whether this is a blank line of a plain file, whose output is a blank line."""

    def render(
        self, tokenizer: TokenizerLike | None, *, chat: bool = False, system: str | None = None
    ) -> str:
        """The string that the model reads."""
        messages = self.conversation(chat=chat, system=system)
        if not messages:
            return self.text
        if tokenizer is None:
            raise ValueError("this model does not have a tokenizer, so it cannot read a chat")
        return tokenizer.chat(messages)

    def conversation(self, *, chat: bool = False, system: str | None = None) -> tuple[Mapping[str, str], ...]:
        """The messages of the chat; empty if the text is used as it is."""
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
    parser.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help='text to continue; standard input if it is "-" or missing. It may contain special tokens '
        "(<|im_start|>), which are plain text with --chat and in messages",
    )
    path_option(
        "--prompts",
        f"many prompts, one per line; in a .jsonl file {PROMPT} per line; in a .tsv file the first column",
    )(parser)
    parser.add_argument(
        "--lines",
        action=argparse.BooleanOptionalAction,
        help="every line of standard input, which is read to its end first, is a prompt (default for "
        "encoder–decoders); otherwise all of it is one prompt",
    )
    flag("--chat", "send the prompt as a user message to a chat model")(parser)
    parser.add_argument("--system", metavar="TEXT", help="system message of the chat (implies --chat)")


def read_prompts(
    args: argparse.Namespace, *, settings: bool = False, keep_blank: bool = False
) -> list[Prompt]:
    """All prompts of the command; every one is checked before the first is used.

    `settings`: JSON lines may contain settings. `keep_blank`: blank lines become blank prompts.
    """
    if args.system is not None:
        check_surrogates(args.system, "--system")
    if args.prompts is not None:
        if args.prompt is not None:
            raise ValueError("give PROMPT or --prompts FILE, not both")
        return read_file(args.prompts, settings=settings, keep_blank=keep_blank)
    if args.prompt is not None and args.prompt != "-":
        return [Prompt(check_surrogates(args.prompt, "the prompt"))]
    if args.prompt is None and sys.stdin.isatty():
        raise ValueError("no prompt: give PROMPT or --prompts FILE, or pipe text into the command")
    text = read_stdin()
    if not text.strip():
        raise ValueError("standard input is empty: pipe a prompt into the command, or give PROMPT")
    prompt = Prompt(text.removesuffix("\n").removesuffix("\r"))
    return split_prompt(prompt, keep_blank=keep_blank) if args.lines else [prompt]


def is_stdin(args: argparse.Namespace) -> bool:
    return args.prompts is None and args.prompt in (None, "-")


def read_stdin() -> str:
    try:
        content = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ValueError(
                f"standard input has more than {MAX_TEXT_BYTES >> 20} MiB: give --prompts FILE instead"
            )
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: {error}") from None


def split_prompt(prompt: Prompt, *, keep_blank: bool = True) -> list[Prompt]:
    return [
        Prompt(line, where=f"standard input:{number}", is_blank=not line.strip())
        for number, line in enumerate(split_lines(prompt.text), start=1)
        if keep_blank or line.strip()
    ]


def read_file(path: Path, *, settings: bool = False, keep_blank: bool = False) -> list[Prompt]:
    """The prompts of a file (format: `unspool.data.records`)."""
    prompts = [_prompt(record, settings) for record in read_records(path, keep_blank=keep_blank)]
    if all(prompt.is_blank for prompt in prompts):
        raise ValueError(f"{path}: the file does not contain a prompt")
    return prompts


def prompt_of_line(line: str, where: str) -> Prompt:
    return _prompt(json_record(line, where), settings=True)


def _prompt(record: Record, settings: bool) -> Prompt:
    content = record.prompt()
    try:
        known = ["prompt", "messages", "source", "target", "id", *(SETTINGS if settings else ())]
        for key in record.fields:
            if key not in known:
                raise ValueError(unknown(key, known, "key of a line"))
        given = {name: value for name in SETTINGS if (value := record.fields.get(name)) is not None}
        own = {name: convert(value, SETTINGS[name], f'"{name}"') for name, value in given.items()}
        for name in ("stop", "system"):
            texts = own.get(name, ())
            for text in [texts] if isinstance(texts, str) else texts:
                check_surrogates(text, f'"{name}"')
    except ValueError as error:
        raise ValueError(f"{record.where}: {error}") from None
    shared: dict[str, Any] = {"where": record.where, "id": record.fields.get("id"), "settings": own}
    if not isinstance(content, str):
        return Prompt(messages=content, **shared)
    return Prompt(content, is_blank=record.is_plain and not content.strip(), **shared)


def render(prompt: Prompt, model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]) -> str:
    """The string that the model reads, checked with these options of `generate`."""
    from unspool.decode.prompts import prompt_vocabulary
    from unspool.decode.run import Run

    try:
        text = prompt.render(model.tokenizer, chat=args.chat, system=args.system)
        tokenizer, _ = prompt_vocabulary(model)
        if tokenizer is not None and not tokenizer.encode(text):
            bos = "" if tokenizer.bos_id is None else tokenizer.show(tokenizer.bos_id)
            # Not every tokenizer can read its BOS token in a text.
            if bos and tokenizer.encode(bos) == [tokenizer.bos_id]:
                raise ValueError(f"the prompt is empty: write something, or {bos!r} to start from nothing")
            raise ValueError("the prompt is empty: write at least one word")
        Run(model, [text], **options)
    except ValueError as error:
        raise ValueError(f"{prompt.where}: {error}" if prompt.where else str(error)) from error
    return text
