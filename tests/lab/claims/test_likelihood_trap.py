from random import Random

import unspool as us
from unspool.lab.claims.likelihood_trap import CLAIM, TOKENS, continuations
from unspool.lab.small_models import PASSAGES


def test_three_continuations_of_as_many_tokens():
    model = us.load("bible")
    prompt, ways = continuations(model, PASSAGES[0], Random(1))
    assert {len(way) for way in ways.values()} == {TOKENS}
    whole = model.tokenizer.decode([*prompt, *ways["reasonable"]])
    assert PASSAGES[0].startswith(whole.strip())
    assert ways["repetition"] == [token for token in prompt if token != model.tokenizer.bos_id][:TOKENS]
    assert sorted(ways["nonsense"]) != sorted(ways["reasonable"])


def test_every_part_can_fail(every_part_can_fail):
    good = {"repetition above reasonable": 8, "reasonable above nonsense": 7}
    every_part_can_fail(CLAIM, good, [{"repetition above reasonable": 4}, {"reasonable above nonsense": 6}])
