"""Prompts from the command line, from standard input, or from a file of lines or JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    def render(self, text: Text | None, *, chat: bool = False, system: str | None = None) -> str:
        """The one string that the model reads."""
        messages = self.messages
        if not messages:
            if not chat and system is None:
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
        help='the text to continue; "-" or nothing reads standard input',
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


def read_prompts(args: argparse.Namespace) -> list[Prompt]:
    """Every prompt that the options name. All of them are checked before the first is used."""
    if args.file is not None:
        if args.prompt is not None:
            raise ValueError("give a PROMPT or --file, not both")
        return read_file(args.file)
    if args.prompt is not None and args.prompt != "-":
        return [Prompt(_utf8(args.prompt, "the prompt"))]
    if args.prompt is None and sys.stdin.isatty():
        raise ValueError("there is no prompt: give one as PROMPT, pipe one in, or name a file with --file")
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: {error}") from None
    if not text.strip():
        raise ValueError("the prompt on standard input is empty; write one, or give it as PROMPT")
    return [Prompt(text.removesuffix("\n").removesuffix("\r"))]


def read_file(path: Path) -> list[Prompt]:
    """The prompts of a file: JSON lines where the suffix says so, plain lines otherwise."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        raise ValueError(
            f"{path}: one JSON document is not a list of prompts; write lines of {EXPECTED} to a .jsonl"
        )
    try:
        # Not splitlines(): a prompt may hold U+2028 and its kin.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
    read = _parse if suffix in JSONL_SUFFIXES else _plain
    prompts = [read(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise ValueError(f"{path}: there is no prompt in this file")
    return prompts


def _plain(line: str, where: str) -> Prompt:
    return Prompt(line.removesuffix("\r"), where=where)


def _parse(line: str, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}); expected {EXPECTED}") from None
    if not isinstance(record, dict) or ("prompt" in record) == ("messages" in record):
        raise ValueError(f"{where}: expected {EXPECTED}, found {_short(line)}")
    if "messages" in record:
        return Prompt(messages=_messages(record["messages"], where), where=where)
    if not isinstance(record["prompt"], str):
        raise ValueError(f'{where}: "prompt" must be a string, found {_short(json.dumps(record["prompt"]))}')
    return Prompt(_utf8(record["prompt"], where), where=where)


def _messages(found: Any, where: str) -> tuple[Mapping[str, str], ...]:
    if not isinstance(found, list) or not found or not all(_is_message(one) for one in found):
        shape = 'a list of {"role": "…", "content": "…"}'
        raise ValueError(f'{where}: "messages" must be {shape}, found {_short(json.dumps(found))}')
    for message in found:
        _utf8(message["content"], where)
    return tuple(found)


def _is_message(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("role", "content"))


def _utf8(text: str, where: str) -> str:
    # Bytes of a shell's argument and JSON's "\ud800" can both make a str that no tokenizer reads.
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: not Unicode text: {error}") from None
    return text


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def render_all(
    prompts: Sequence[Prompt], model: StepModel, args: argparse.Namespace, options: Mapping[str, Any]
) -> list[str]:
    """Every prompt as the string that the model reads; one that it cannot read fails before any work."""
    from unspool.decode.generate import make_job

    texts = []
    for prompt in prompts:
        try:
            texts.append(prompt.render(model.text, chat=args.chat, system=args.system))
            make_job(model, [texts[-1]], **options)
        except ValueError as error:
            raise ValueError(f"{prompt.where}: {error}" if prompt.where else str(error)) from error
    return texts
