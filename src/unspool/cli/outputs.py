"""What systems said: files of outputs, one system each, as `unspool.data.records` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unspool.cli.output import tell
from unspool.data.records import Layout, Record, read_records


@dataclass(frozen=True)
class SystemOutputs:
    """One system's outputs."""

    name: str
    texts: tuple[str, ...]
    prompts: tuple[str, ...] | None
    """None where the file has none."""


def read_systems(given: Sequence[str], layout: Layout | None = None) -> list[SystemOutputs]:
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
        found[label] = read_outputs(path, label, layout)
    return list(found.values())


def read_outputs(path: Path, name: str | None = None, layout: Layout | None = None) -> SystemOutputs:
    """The outputs in one file, with their prompts if it has them."""
    records = read_records(path, layout, keep_blank=True)
    texts = tuple(record.output() for record in records)
    asked = [record for record in records if "prompt" in record.fields or "source" in record.fields]
    if asked and len(asked) != len(texts):
        raise ValueError(f"{path}: {len(asked)} of {len(texts)} lines have a prompt: give all of them one")
    if len(texts) > 1 and all(record.is_plain and "\t" in record.content for record in records):
        tell(f"{path}: every line has a tab and is one text; if it is a pair, name the file .tsv")
    prompts = tuple(_asked(record) for record in asked) if asked else None
    return _some(SystemOutputs(path.stem if name is None else name, texts, prompts), path)


def _asked(record: Record) -> str:
    found = record.prompt()
    if not isinstance(found, str):
        raise ValueError(f'{record.where}: expected a string as "prompt", found {record.shown}')
    return found


def _some(found: SystemOutputs, path: Path) -> SystemOutputs:
    if not found.texts:
        raise ValueError(f"{path}: there is no output in this file")
    if not any(text.strip() for text in found.texts):
        raise ValueError(f"{path}: all {len(found.texts)} outputs are empty: there is nothing to measure")
    return found


def shared_prompts(
    systems: Sequence[SystemOutputs], path: Path | None, layout: Layout | None = None
) -> list[str]:
    """The prompts that all systems answered: of a file, or of the outputs."""
    if path is not None:
        prompts = [_asked(record) for record in read_records(path, layout, keep_blank=True)]
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
