"""Train a small encoder–decoder to write dates as ISO 8601, then decode it with greedy and beam search."""

import argparse
import tempfile

import unspool as us

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--updates", type=int, default=600, help="600 take about a minute")
args = parser.parse_args()

recipe = {
    "seed": 1,
    "data": {"kind": "task", "task": {"kind": "dates"}, "train": 8000, "valid": 200},
    "tokenizer": {"kind": "characters"},
    "batches": {"kind": "bucketed", "tokens": 1024},
    "model": {
        "kind": "transformer_seq2seq",
        "width": 64,
        "heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "inner_width": 128,
    },
    "schedule": {"kind": "cosine", "warmup": 20},
    "train": {"updates": args.updates, "lr": 4e-3, "validate_every": args.updates},
}
with tempfile.TemporaryDirectory() as folder:
    model = us.train(recipe, f"{folder}/dates")

dates = ["3 March 1987", "the 21st of July, 2004", "May 5th, 1921"]
for decoder in (us.Greedy(), us.Beam(5)):
    print(decoder, [out.text for out in us.generate(model, dates, decoder, max_new_tokens=12)])
