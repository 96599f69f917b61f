"""Greedy decoding of a small model loops. Three decoders that do not."""

import unspool as us

PROMPTS = ["In the beginning", "And the king said", "The men of the city", "Now after these things"]
DECODERS = {
    "greedy": us.Greedy(),
    "no repeated 3-grams": us.Greedy(us.NoRepeatNgram(3)),
    "DRY": us.Greedy(us.DRY()),
    "min-p": us.Sample(us.MinP(0.05)),
}

model = us.load("bible")
for name, decoder in DECODERS.items():
    out = us.generate(model, PROMPTS[0], decoder, max_new_tokens=60, seed=1)
    print(f"{name}: {PROMPTS[0]}{out.text}\n")

rates = us.diagnose.loop_rates(model, PROMPTS, DECODERS, max_new_tokens=60)
for row in rates.decoders:
    print(f"{row.decoder}: {len(row.periods)} of {row.texts} texts end in a loop, rep-4 {row.rep_4:.0%}")
