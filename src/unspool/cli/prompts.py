"""Prompts from the command line, from standard input, or from a file of lines or JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.characters import check_characters
from unspool.cli.json_lines import decoded, split_lines
from unspool.cli.line_settings import CHECKS, read_settings
from unspool.config import unknown

if TYPE_CHECKING:
    from unspool.protocols import StepModel, Text

JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})
EXPECTED = '{"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'


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

    def render(self, text: Text | None, *, chat: bool = False, system: str | None = None) -> str:
        """The one string that the model reads."""
        system = self.settings.get("system", system)
        messages = self.messages
        if not messages:
            if not self.settings.get("chat", chat or system is not None):
                return self.text
            messages = ({"role": "user", "content": self.text},)
        if system is not None and messages[0]["role"] != "system":
            messages = ({"role": "system", "content": system}, *messages)
        if text is None:
            raise ValueError("this model has no tokenizer, so it cannot be given a conversation")
        return text.chat(messages)


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
        help=f"many prompts: one a line, blank lines skipped; or, with the suffix .jsonl, {EXPECTED} a line",
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
        check_characters(args.system, "--system")
    if args.file is not None:
        if args.prompt is not None:
            raise ValueError("give a PROMPT or --file, not both")
        return read_file(args.file, settings=settings)
    if args.prompt is not None and args.prompt != "-":
        return [Prompt(check_characters(args.prompt, "the prompt"))]
    if args.prompt is None and sys.stdin.isatty():
        raise ValueError("there is no prompt: give one as PROMPT, pipe one in, or name a file with --file")
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: {error}") from None
    if not text.strip():
        raise ValueError("the prompt on standard input is empty; write one, or give it as PROMPT")
    return [Prompt(text.removesuffix("\n").removesuffix("\r"))]


def read_file(path: Path, *, settings: bool = False) -> list[Prompt]:
    """The prompts of a file: JSON lines where the suffix says so, plain lines otherwise."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        raise ValueError(
            f"{path}: one JSON document is not a list of prompts; write lines of {EXPECTED} to a .jsonl"
        )
    lines = enumerate(split_lines(decoded(path)), start=1)
    if suffix in JSONL_SUFFIXES:
        prompts = [_parse(line, f"{path}:{number}", settings) for number, line in lines if line.strip()]
    else:
        prompts = [Prompt(line, where=f"{path}:{number}") for number, line in lines if line.strip()]
    if not prompts:
        raise ValueError(f"{path}: there is no prompt in this file")
    return prompts


def prompt_of_line(line: str, where: str) -> Prompt:
    """The prompt of one line of JSON, with its settings."""
    return _parse(line, where, settings=True)


def _parse(line: str, where: str, settings: bool) -> Prompt:
    try:
        record = json.loads(line, object_pairs_hook=_object)
    except RepeatedKeyError as error:
        raise ValueError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}); expected {EXPECTED}") from None
    if not isinstance(record, dict) or ("prompt" in record) == ("messages" in record):
        raise ValueError(f"{where}: expected {EXPECTED}, found {_short(line)}")
    try:
        return _prompt(record, where, settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _prompt(record: Mapping[str, Any], where: str, settings: bool) -> Prompt:
    known = ["prompt", "messages", "id", *(CHECKS if settings else ())]
    for key in record:
        if key not in known:
            raise ValueError(unknown(key, known, "key of a line"))
    found = read_settings(record)
    for name in ("stop", "system"):
        for text in _list(found.get(name, ())):
            check_characters(text, f'"{name}"')
    shared: dict[str, Any] = {"where": where, "id": record.get("id"), "settings": found}
    if "messages" in record:
        return Prompt(messages=_messages(record["messages"]), **shared)
    if not isinstance(record["prompt"], str):
        raise ValueError(f'"prompt" must be a string, found {_short(json.dumps(record["prompt"]))}')
    return Prompt(check_characters(record["prompt"], '"prompt"'), **shared)


class RepeatedKeyError(ValueError):
    """A key that a JSON object has twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(
                f'the key "{_short(key)}" stands twice in one object: leave one of them out'
            )
        found[key] = value
    return found


def _list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def _messages(found: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(found, list) or not found or not all(_is_message(one) for one in found):
        shape = 'a list of {"role": "…", "content": "…"}'
        raise ValueError(f'"messages" must be {shape}, found {_short(json.dumps(found))}')
    for message in found:
        check_characters(message["content"], '"messages"')
    return tuple(found)


def _is_message(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("role", "content"))


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def render_all(
    prompts: Sequence[Prompt], model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]
) -> list[str]:
    """Every prompt as the string that the model reads; one that it cannot read fails before any work."""
    return [render(prompt, model, args, options) for prompt in prompts]


def render(prompt: Prompt, model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]) -> str:
    """The prompt as the string that the model reads, tried with these options of `generate`."""
    from unspool.decode.prompts import reading
    from unspool.decode.request import make_job

    try:
        text = prompt.render(model.text, chat=args.chat, system=args.system)
        read, _ = reading(model)
        if read is not None and not read.encode(text):
            raise ValueError(_empty(read))
        make_job(model, [text], **options)
    except ValueError as error:
        raise ValueError(f"{prompt.where}: {error}" if prompt.where else str(error)) from error
    return text


def _empty(text: Text) -> str:
    """What to do about a prompt of no tokens; where the first token of a text can be written, how."""
    first = "" if text.bos_id is None else text.show(text.bos_id)
    if first and text.encode(first) == [text.bos_id]:
        return (
            f"the prompt is empty: write something, or {first!r}, which begins a text, to begin from nothing"
        )
    return "the prompt is empty: write at least one word to go on from"
