"""Measure the false-positive and detection rates of `us.decode.find_approximate_loop`.

    python benchmarks/approximate_loops.py --webtext webtext.valid.jsonl webtext.test.jsonl --wikitext wiki.valid.tokens wiki.test.tokens

False positives on human text: the share of WebText texts (JSON lines with "text") that end in an approximate loop; for
WikiText articles, the share of positions at which the last 96 words are one, and the share of articles with
any report. Planted loops: a passage of 8 to 20 words is repeated until the text has 96, 128 or 160 words, with changes
in each repetition. Times are per position, and per call for a check at the end of a text.
"""

import argparse
import json
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from unspool.decode.loops import (
    THRESHOLD,
    WINDOW,
    find_approximate_loop,
    find_loop,
    loop_words,
    repeat_coverage,
)

TRIALS = 500


def articles(paths):
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    text = text.replace("<unk>", "unk").replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".")
    return [it for it in re.split(r"\n = [^=\n]+ = \n", text) if len(it.split()) > 2 * WINDOW]


def along(words):
    """The coverage after every word."""
    return [repeat_coverage(words[max(0, end - WINDOW) : end]) for end in range(1, len(words) + 1)]


@dataclass
class Turn:
    """One repetition of a phrase."""

    phrase: list[str]
    number: int
    sources: list[list[str]]
    rng: random.Random

    def other(self):
        return self.rng.choice(self.rng.choice(self.sources))

    def replaced(self, share):
        return [self.other() if self.rng.random() < share else it for it in self.phrase]


CHANGES = {
    "a number in front (a numbered list)": lambda it: [f"{it.number}.", *it.phrase],
    "a number inside": lambda it: [*it.phrase[:4], str(it.rng.randrange(10_000)), *it.phrase[4:]],
    "case of words, at random": lambda it: [
        it.rng.choice((word.upper(), word.lower())) for word in it.phrase
    ],
    "one word, always in the same place": lambda it: [*it.phrase[:3], it.other(), *it.phrase[4:]],
    "25 % of the words": lambda it: it.replaced(0.25),
    "40 % of the words": lambda it: it.replaced(0.4),
    "60 % of the words": lambda it: it.replaced(0.6),
}


def planted(change, length, sources, rng):
    words = rng.choice(sources)
    size = rng.randint(8, 20)
    begin = rng.randrange(len(words) - size)
    said, number = [], 0
    while len(said) < length:
        number += 1
        said += change(Turn(words[begin : begin + size], number, sources, rng))
    return said


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--webtext", type=Path, nargs="+", required=True)
    parser.add_argument("--wikitext", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    rng = random.Random(1)
    web = [json.loads(line)["text"] for path in args.webtext for line in path.open(encoding="utf-8")]
    long = [text for text in web if len(loop_words(text)) >= 40]
    wrong = [text for text in long if find_approximate_loop(text)]
    print(f"WebText: {len(wrong)} of {len(long)} texts of 40 words or more ({len(wrong) / len(long):.3%})")
    wiki = articles(args.wikitext)
    begun = time.perf_counter()
    curves = [along(loop_words(text)) for text in wiki]
    places = sum(map(len, curves))
    each = (time.perf_counter() - begun) / places
    over = sum(it >= THRESHOLD for curve in curves for it in curve)
    somewhere = sum(max(curve) >= THRESHOLD for curve in curves)
    print(
        f"WikiText: {over} of {places} places ({over / places:.3%}), {somewhere} of {len(wiki)} articles somewhere"
    )
    print(f"time: {1e6 * each:.1f} µs a word, for the window after every word")
    begun = time.perf_counter()
    for text in wiki[:50]:
        find_approximate_loop(text)
    print(f"time: {1e6 * (time.perf_counter() - begun) / 50:.0f} µs a look at the end of a text")
    sources = [[it for it in text.split() if it.isalpha()] for text in wiki]
    print(
        "\n| changed in each repetition | 96 words | 128 words | 160 words | exact loops found |\n|---|--:|--:|--:|--:|"
    )
    for name, change in CHANGES.items():
        cells, exact = [], 0
        for length in (96, 128, 160):
            texts = [planted(change, length, sources, rng) for _ in range(TRIALS)]
            cells.append(f"{sum(find_approximate_loop(it) is not None for it in texts) / TRIALS:.1%}")
            exact += sum(find_loop(it) is not None for it in texts)
        print(f"| {name} | {' | '.join(cells)} | {exact / 3 / TRIALS:.1%} |")


if __name__ == "__main__":
    main()
