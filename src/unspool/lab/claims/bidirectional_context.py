"""Claim: the label of a word can depend on the words to its right.

    h_t = [→h_t ; ←h_t]   against   →h_t:   "The [Forbes] building", "The [Forbes] family"

He He's lecture, "Bi-directional RNN encoder"; Schuster & Paliwal 1997
(papers.bib: schuster1997bidirectional).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.small_models import train_model
from unspool.plots.seeds import bars, chart

NAMES = ("Forbes", "Ford", "Morgan", "Carter", "Bishop", "Mason", "Porter", "Parker", "Cooper", "Turner")
PLACES = ("building", "tower", "bridge", "station", "square", "street")
PEOPLE = ("family", "brothers", "children", "sisters", "couple", "cousins")
REST = ("is near the river", "was seen today", "has a long history", "is known to all", "was here before")


def sentence(rng: Random) -> tuple[str, str]:
    """Return words and tags; the word after a name decides between place and person."""
    place = rng.random() < 0.5
    rest = rng.choice(REST)
    words = f"The {rng.choice(NAMES)} {rng.choice(PLACES if place else PEOPLE)} {rest}"
    return words, f"O {'PLACE' if place else 'PERSON'} O{' O' * len(rest.split())}"


def right(model: Any, rows: Sequence[tuple[str, str]]) -> float:
    """Return the share of names with the right tag."""
    found = model.tag([words for words, _ in rows])
    good = [tags[1].label == truth.split()[1] for tags, (_, truth) in zip(found, rows, strict=True)]
    return float(sum(good) / len(good))


def turned(model: Any) -> float:
    """Return the share of names whose tag changes from "building" to "family"."""
    pairs = [(f"The {name} building was seen today", f"The {name} family was seen today") for name in NAMES]
    found = [[tags[1].label for tags in model.tag(list(pair))] for pair in pairs]
    return found.count(["PLACE", "PERSON"]) / len(pairs)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train a bidirectional tagger and a left-to-right one."""
    rng = Random(seed)
    rows = [sentence(rng) for _ in range(400 if quick else 1500)]
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "names.tsv"
        file.write_text("".join(f"{words}\t{tags}\n" for words, tags in rows), encoding="utf-8")
        data = {"kind": "tagged", "train": str(file), "valid_lines": 50}
        for name, both in tracked({"both directions": True, "left to right": False}.items(), progress):
            encoder = {"kind": "rnn", "width": 16, "bidirectional": both}
            model = {"kind": "tagger", "encoder": encoder}
            made = train_model(data, model, 25 if quick else 150, seed, lr=1e-2, tokenizer={"kind": "words"})
            new = [sentence(rng) for _ in range(400)]
            found[f"{name}: names tagged right"] = right(made, new)
            found[f"{name}: names that the next word turns"] = turned(made)
    return found


CLAIM = Claim(
    name="bidirectional_context",
    statement="A word's label can depend on what follows it: an encoder that reads both ways finds it, one "
    "that reads from left to right cannot.",
    source=lecture("Bi-directional RNN encoder", "schuster1997bidirectional"),
    measured="GRU taggers (width 16) learn whether a name is a place or a person from sentences in which "
    "only the next word tells (The Forbes building …, The Forbes family …): the share of names tagged right "
    "in 400 new sentences, and of ten names how many change their tag with that word.",
    criterion={
        "in both directions at least 0.95 of the names are tagged right": lambda n: (
            n["both directions: names tagged right"] >= 0.95
        ),
        "from left to right it is chance: 0.5 ± 0.1": lambda n: (
            abs(n["left to right: names tagged right"] - 0.5) <= 0.1
        ),
        "in both directions the next word turns every name's tag": lambda n: (
            n["both directions: names that the next word turns"] == 1.0
        ),
        "from left to right it turns none": lambda n: (
            n["left to right: names that the next word turns"] == 0.0
        ),
    },
    measure=measure,
    draw=chart(
        bars(
            {f"{name}: names tagged right": name for name in ("both directions", "left to right")},
            "names tagged right (dotted: chance)",
            limit=0.5,
            xlim=(0, 1.02),
        )
    ),
    size=(6.4, 2.0),
)
