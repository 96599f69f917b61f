"""What systems said: files of outputs, one system each.

A file of JSON lines has the output in "text", as `unspool generate --json` writes it, and may have the
"prompt"; any other file is one output a line, of which an empty one is an empty output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unspool.characters import check_characters
from unspool.cli.json_lines import decoded, split_lines
from unspool.cli.prompts import JSONL_SUFFIXES

EXPECTED = '{"text": "…"}, with or without "prompt"'


@dataclass(frozen=True)
class SystemOutputs:
    """One system's outputs."""

    name: str
    texts: tuple[str, ...]
    prompts: tuple[str, ...] | None
    """None where the file has none."""


def read_systems(given: Sequence[str]) -> list[SystemOutputs]:
    """From files, each PATH or NAME=PATH; a file without a name is called by its own, without its ending."""
    found: dict[str, SystemOutputs] = {}
    for each in given:
        name, mark, rest = each.partition("=")
        path = Path(rest if mark and not Path(each).exists() else each)
        label = name if mark and not Path(each).exists() else path.stem
        if not label or label in found:
            raise ValueError(
                f"two systems are called {label!r}: name them, as in ours={path} theirs=other/{path.name}"
                if label
                else f"{each!r} names no system: write NAME=PATH"
            )
        found[label] = read_outputs(path, label)
    return list(found.values())


def read_outputs(path: Path, name: str | None = None) -> SystemOutputs:
    """The outputs in one file."""
    label = path.stem if name is None else name
    if path.suffix.lower() not in JSONL_SUFFIXES:
        lines = split_lines(decoded(path))
        return _some(SystemOutputs(label, tuple(lines[:-1] if lines[-1] == "" else lines), None), path)
    texts, prompts = list[str](), list[str]()
    for number, line in enumerate(split_lines(decoded(path)), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = _record(line, where)
        texts.append(check_characters(record["text"], f"{where}: text"))
        if "prompt" in record:
            prompts.append(check_characters(record["prompt"], f"{where}: prompt"))
    if prompts and len(prompts) != len(texts):
        raise ValueError(f"{path}: {len(prompts)} of {len(texts)} lines have a prompt: give all of them one")
    return _some(SystemOutputs(label, tuple(texts), tuple(prompts) if prompts else None), path)


def _record(line: str, where: str) -> dict[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}); expected {EXPECTED}") from None
    strings = (
        {"text": record.get("text"), "prompt": record.get("prompt", "")} if isinstance(record, dict) else {}
    )
    if not strings or not all(isinstance(it, str) for it in strings.values()):
        raise ValueError(f"{where}: expected {EXPECTED}, found {line[:60]}")
    return {key: value for key, value in strings.items() if key in record}


def _some(found: SystemOutputs, path: Path) -> SystemOutputs:
    if not found.texts:
        raise ValueError(f"{path}: there is no output in this file")
    if not any(text.strip() for text in found.texts):
        raise ValueError(f"{path}: all {len(found.texts)} outputs are empty: there is nothing to measure")
    return found


def shared_prompts(systems: Sequence[SystemOutputs], path: Path | None) -> list[str]:
    """The prompts that all systems answered: of a file (one a line, or JSON lines), or of the outputs."""
    if path is not None:
        prompts = _prompts(path)
        for it in systems:
            if len(it.texts) != len(prompts):
                raise ValueError(f"{it.name} has {len(it.texts)} outputs, and {path} {len(prompts)} prompts")
        return prompts
    first = systems[0]
    for it in systems:
        if it.prompts is None:
            raise ValueError(
                f'the outputs of {it.name} have no prompts: give --prompts FILE, or JSON lines with "prompt"'
            )
        if it.prompts != first.prompts:
            raise ValueError(
                f"{first.name} and {it.name} did not answer the same prompts in the same order, and cannot "
                "be compared text by text"
            )
    assert first.prompts is not None
    return list(first.prompts)


def _prompts(path: Path) -> list[str]:
    lines = split_lines(decoded(path))
    lines = lines[:-1] if lines[-1] == "" else lines
    if path.suffix.lower() not in JSONL_SUFFIXES:
        return lines
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
                raise ValueError(f'{path}:{number}: expected {{"prompt": "…"}}, found {line[:60]}')
            found.append(record["prompt"])
    return found
