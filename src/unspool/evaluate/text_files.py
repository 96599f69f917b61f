"""Read texts, source–target pairs and system outputs from files.

`unspool.data.records` defines the file formats. Notes about a file are warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.data.records import Layout, Record, read_records
from unspool.errors import note

if TYPE_CHECKING:
    from unspool.training import Recipe


@dataclass(frozen=True)
class SystemOutputs:
    """The outputs of one system."""

    name: str
    texts: tuple[str, ...]
    prompts: tuple[str, ...] | None
    """None if the file does not contain prompts."""


def read_systems(files: Sequence[str], layout: Layout | None = None) -> list[SystemOutputs]:
    """Read one system from each PATH or NAME=PATH; the default name is the file name without its suffix."""
    systems: dict[str, SystemOutputs] = {}
    for file in files:
        name, separator, rest = file.partition("=")
        has_name = bool(separator) and not Path(file).exists()
        path = Path(rest if has_name else file)
        label = name if has_name else path.stem
        if not label:
            raise ValueError(f"{file!r} does not name a system: write NAME=PATH")
        if label in systems:
            raise ValueError(
                f"two systems are called {label!r}: name them, as in ours={path} theirs=other/{path.name}"
            )
        systems[label] = read_outputs(path, label, layout)
    return list(systems.values())


def read_outputs(path: Path, name: str | None = None, layout: Layout | None = None) -> SystemOutputs:
    """Read the outputs in one file, with their prompts if it contains them."""
    records = read_records(path, layout, keep_blank=True)
    texts = tuple(record.output() for record in records)
    with_prompt = [record for record in records if "prompt" in record.fields or "source" in record.fields]
    if with_prompt and len(with_prompt) != len(texts):
        raise ValueError(
            f"{path}: {len(with_prompt)} of {len(texts)} lines have a prompt: give every line a prompt"
        )
    if not texts:
        raise ValueError(f"{path}: the file contains no output")
    if not any(text.strip() for text in texts):
        raise ValueError(f"{path}: all {len(texts)} outputs are empty")
    if len(texts) > 1 and all(record.is_plain and "\t" in record.content for record in records):
        note(f"{path}: every line has a tab and is read as one text; name the file .tsv if it holds pairs")
    prompts = tuple(map(_prompt_string, with_prompt)) if with_prompt else None
    return SystemOutputs(path.stem if name is None else name, texts, prompts)


def shared_prompts(
    systems: Sequence[SystemOutputs], path: Path | None = None, layout: Layout | None = None
) -> list[str]:
    """Return the prompts that all systems answered: those of the file at `path`, or of the outputs."""
    if path is not None:
        prompts = [_prompt_string(record) for record in read_records(path, layout, keep_blank=True)]
        for system in systems:
            if len(system.texts) != len(prompts):
                raise ValueError(
                    f"{system.name} has {len(system.texts)} outputs but {path} has {len(prompts)} prompts"
                )
        return prompts
    first = systems[0]
    for system in systems:
        if system.prompts is None:
            raise ValueError(
                f'{system.name} has no prompts: give --prompts FILE, or outputs as JSON lines with "prompt"'
            )
        if system.prompts != first.prompts:
            raise ValueError(f"{first.name} and {system.name} must answer the same prompts in the same order")
    assert first.prompts is not None
    return list(first.prompts)


def _prompt_string(record: Record) -> str:
    prompt = record.prompt()
    if not isinstance(prompt, str):
        raise ValueError(f'{record.where}: expected a string as "prompt", found {record.shown}')
    return prompt


def text_records(path: Path, layout: Layout | None = None, limit: int | None = None) -> list[Record]:
    """Read the first `limit` records of a file; warn that a plain file is read line by line."""
    records = read_records(path, layout)
    if not records:
        raise ValueError(f"{path}: the file contains no text")
    if len(records) > 1 and all(record.is_plain for record in records):
        note(f"{path}: {len(records)} texts, one a line (--document file reads the file as one text)")
    return records[:limit]


def read_texts(path: Path, layout: Layout | None = None, limit: int | None = None) -> list[str]:
    """Read the first `limit` texts of a file."""
    return [record.text() for record in text_records(path, layout, limit)]


def read_pairs(
    path: Path, layout: Layout | None = None, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """Read the first `limit` sources and targets of a file."""
    pairs = [record.pair() for record in read_records(path, layout)[:limit]]
    if not pairs:
        raise ValueError(f"{path}: the file contains no pair")
    return [source for source, _ in pairs], [target for _, target in pairs]


def layout_of_run(folder: Path) -> Layout:
    """Return the layout of a run's training files; the default layout if `folder` is not a run."""
    recipe = run_recipe(folder)
    return Layout() if recipe is None else layout_of(recipe.data)


def run_recipe(folder: Path) -> Recipe | None:
    """Return the recipe of a run; None without one, or, with a warning, if it cannot be read."""
    from unspool.training import read_recipe

    path = folder / "recipe.toml"
    if not path.is_file():
        return None
    try:
        return read_recipe(path)
    except ValueError as error:
        note(f"cannot read the run's recipe: {error}")
        return None


def layout_of(data: object) -> Layout:
    """Return the layout of the files that a recipe's [data] describes."""
    from unspool.data.line_formats import JSONL, TSV, LabelledLines, Lines, TaggedLines

    match data:
        case TSV():
            return Layout(columns=(data.source, data.target))
        case JSONL():
            names = {name: getattr(data, name) for name in ("text", "source", "target")}
            return Layout(fields={name: key for name, key in names.items() if key is not None})
        case LabelledLines():
            return Layout(text_column=data.text)
        case TaggedLines():
            return Layout(text_column=data.words)
        case Lines():
            return Layout(document=data.document)
    return Layout()
