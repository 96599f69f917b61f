"""Split a file of sentence pairs into training, validation and test sets that share no sentence.

    python recipes/split_pairs.py deu.txt --output anki --valid 1000 --test 2000

Collections of translations hold many versions of one sentence ("Go." — "Geh." — "Gehen Sie."). Held out at
random, a test sentence would have been seen in training; here pairs that share a sentence on either side,
and those that share one with them, stay together. Written: train.tsv, valid.tsv, test.tsv.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path


def families(pairs: list[tuple[str, str]]) -> list[list[int]]:
    """Pairs that are connected by a common sentence, as lists of their numbers (union–find)."""
    parent = list(range(len(pairs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    seen: dict[tuple[int, str], int] = {}
    for number, pair in enumerate(pairs):
        for side, sentence in enumerate(pair):
            first = seen.setdefault((side, sentence.casefold()), number)
            parent[root(number)] = root(first)
    found: dict[int, list[int]] = {}
    for number in range(len(pairs)):
        found.setdefault(root(number), []).append(number)
    return list(found.values())


def split(
    pairs: list[tuple[str, str]], valid: int, test: int, seed: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Training, validation and test pairs; of a family that is held out only one pair is kept."""
    groups = families(pairs)
    dice = random.Random(seed)
    dice.shuffle(groups)
    small = [group for group in groups if len(group) <= 4]  # a large family is worth more in training
    if len(small) < valid + test or len(groups) == valid + test:
        raise SystemExit(
            f"{len(pairs)} pairs form {len(small)} small families, too few to hold {valid + test} of them out"
        )
    held = {id(group) for group in small[: valid + test]}
    chosen = [pairs[dice.choice(group)] for group in small[: valid + test]]
    train = [pairs[number] for group in groups if id(group) not in held for number in group]
    return train, chosen[:valid], chosen[valid:]


def main() -> int:
    """Read the pairs, write the three files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, help="tab-separated; the first two columns are read")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the three files")
    parser.add_argument("--valid", type=int, default=1000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.pairs.is_file():
        raise SystemExit(f"{args.pairs} is not there: give a file with a pair of sentences a line")
    lines = [line.split("\t") for line in args.pairs.read_text(encoding="utf-8").splitlines() if line.strip()]
    short = [number for number, fields in enumerate(lines, 1) if len(fields) < 2]
    if short:
        raise SystemExit(f"{args.pairs}, line {short[0]}: expected two columns with a tab between them")
    pairs = list(dict.fromkeys((fields[0].strip(), fields[1].strip()) for fields in lines))
    sets = split(pairs, args.valid, args.test, args.seed)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, chosen in zip(("train", "valid", "test"), sets, strict=True):
        text = "".join(f"{first}\t{second}\n" for first, second in chosen)
        (args.output / f"{name}.tsv").write_text(text, encoding="utf-8")
        print(f"{name}.tsv: {len(chosen)} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
