"""Make a blinded set of several systems' outputs to the same prompts.

Blinded: items have names drawn from the seed, their order is shuffled, the sides of a pair are tossed for
each, and no system is named in what raters see. The same outputs and the same seed give the same set. A text
that several systems said to a prompt is shown once; in pairs, two equal texts are a tie, and not asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from unspool.characters import check_characters
from unspool.decode.arguments import as_whole, one_of, shown
from unspool.evaluate.rating.rating_set import ANSWERS, KEY, KIND, SET, RatingSet
from unspool.evaluate.rating.scales import SCALES
from unspool.files.atomic import new_file


def prepare(
    folder: str | Path,
    systems: Mapping[str, Sequence[str]],
    prompts: Sequence[str],
    *,
    scale: str = "score",
    seed: int = 0,
    most: int | None = None,
) -> RatingSet:
    """Write a set into a folder, which is made if it must be; one that holds a set already is refused.

    `systems` are outputs by the system's name, one for each prompt. With `most`, so many of the prompts are
    drawn. A `scale` is "score" (0, 1, 2 for one text) or "preference" (which of two).
    """
    folder = Path(folder)
    one_of("scale", scale, SCALES)
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same set.")
    outputs = _checked(systems, prompts, scale)
    dice = Random(f"rating {seed}")
    places = list(range(len(prompts)))
    if most is not None:
        most = as_whole("most", most, at_least=1, advice="It is how many prompts are drawn.")
        places = sorted(dice.sample(places, min(most, len(places))))
    items, key, ties = [], {}, list[tuple[str, str]]()
    for place in places:
        said: dict[str, list[str]] = {}
        for name, texts in outputs.items():
            said.setdefault(texts[place], []).append(name)
        for shown_texts in _shown(said, scale, dice):
            name = f"{dice.getrandbits(48):012x}"
            items.append({"id": name, "prompt": prompts[place], "texts": shown_texts})
            key[name] = {"prompt": place, "systems": [said[text] for text in shown_texts]}
        if SCALES[scale].texts == 2:
            ties += [pair for names in said.values() for pair in combinations(names, 2)]
    if not items:
        raise ValueError("the systems said the same to every prompt: there is nothing to choose between")
    dice.shuffle(items)
    _write(folder, {"kind": KIND, "scale": scale, "seed": seed, "items": items}, key, outputs, ties)
    return RatingSet.load(folder)


def _shown(said: Mapping[str, list[str]], scale: str, dice: Random) -> list[list[str]]:
    """The texts of each item of one prompt; of a pair, either may stand first."""
    if SCALES[scale].texts == 1:
        return [[text] for text in said]
    return [dice.sample(pair, 2) for pair in combinations(said, 2)]


def _checked(
    systems: Mapping[str, Sequence[str]], prompts: Sequence[str], scale: str
) -> dict[str, Sequence[str]]:
    if not isinstance(systems, Mapping) or not all(isinstance(it, str) and it.strip() for it in systems):
        raise TypeError(f"systems is {shown(systems)}, but must be a dict from a name to its outputs.")
    least = SCALES[scale].texts
    if len(systems) < least:
        raise ValueError(f"{len(systems)} systems were given, and {scale} needs {least} or more")
    for name, texts in {"prompts": prompts, **systems}.items():
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
            raise TypeError(f"{name} is {shown(texts)}, but must be a list of texts.")
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{name} {place} is {shown(text)}, but must be a string.")
            check_characters(text, f"{name} {place}")
        if len(texts) != len(prompts):
            raise ValueError(
                f"system {name!r} has {len(texts)} outputs for {len(prompts)} prompts: give one for each"
            )
    if not prompts:
        raise ValueError("there is no prompt, and so nothing to rate: give one or more, with their outputs")
    for name, texts in systems.items():
        if not any(text.strip() for text in texts):
            raise ValueError(f"all outputs of system {name!r} are empty: there is nothing to rate")
    return dict(systems)


def _write(
    folder: Path, blinded: dict[str, Any], key: dict[str, Any], systems: Mapping[str, Any], ties: list[Any]
) -> None:
    for name in (SET, ANSWERS):
        if (folder / name).exists():
            raise FileExistsError(
                f"{folder} holds a rating set already ({name}): choose another folder, for answers belong to "
                "the set that they were given to"
            )
    secret = {"kind": f"{KIND}: key", "systems": list(systems), "items": key, "ties": ties}
    for name, content in ((KEY, secret), (SET, blinded)):  # the set last: it says that all is there
        with new_file(folder / name) as fresh:
            text = json.dumps(content, ensure_ascii=False, indent=1)
            fresh.write_text(text + "\n", encoding="utf-8")
