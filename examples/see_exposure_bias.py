"""Exposure bias: how much worse does a model predict after its own tokens than after true ones?

The model learns a made-up language whose true probabilities are known, so the answer needs no references.
"""

import argparse
import tempfile

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import FullSupport

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--updates", type=int, default=300)
args = parser.parse_args()

LANGUAGE = {"word_count": 50, "branching": 8, "order": 1}
NOISE = 0.02
"""This share of tokens is random, so that no text is impossible and every error has a finite price."""

recipe = {
    "seed": 1,
    "data": {
        "kind": "language",
        "language": {"kind": "zipf_markov", **LANGUAGE},
        "noise": NOISE,
        "train": 2000,
        "valid": 100,
    },
    "batches": {"tokens": 512},
    "model": {"kind": "rnn_lm", "width": 48},
    "schedule": {"kind": "cosine", "warmup": 20},
    "train": {"updates": args.updates, "lr": 5e-3, "validate_every": args.updates},
}
with tempfile.TemporaryDirectory() as folder:
    model = us.train(recipe, f"{folder}/run")

truth = FullSupport(ZipfMarkov(**LANGUAGE), NOISE)
found = us.diagnose.true_exposure(model, truth, lengths=(1, 4, 16), texts=64)
for point in found.points:
    print(point)
