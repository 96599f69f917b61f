import pytest
import torch

import unspool as us
from unspool.decode.batching import CachedPrefixModel
from unspool.models.transformer_lm import TransformerConfig

SEARCHES = [
    us.Greedy(),
    us.Sample(),
    us.Beam(3),
    us.ContrastiveSearch(k=3, alpha=0.5),
    us.MBR(3, us.Sample(), us.decode.TokenF1()),
]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocab_size=31, width=16, layers=2, heads=4, head_width=4, inner_width=20, context=200
    )
    return shape.build().eval()


@pytest.mark.parametrize("decoder", SEARCHES, ids=repr)
def test_what_it_says_is_the_same_and_nothing_is_read_twice(model, decoder):
    remembering, history = CachedPrefixModel(model, 2**20), [1, 2, 3]
    for turn in range(4):
        options = {"max_new_tokens": 9, "seed": turn}
        found = us.generate(remembering, history, decoder, **options)
        assert found == us.generate(model, history, decoder, **options)
        history += [*found.tokens, 5, 6, 7]
    if not isinstance(decoder, us.ContrastiveSearch):  # which asks for the hidden vectors of the whole prompt
        # Of each turn: the question, and the last tokens of the answer, which nobody asked about.
        assert remembering.batch.shared_tokens > len(history) / 2


def test_two_streams_of_one_model_do_not_touch_each_other(model):
    remembering = CachedPrefixModel(model, 2**20)
    first = us.stream(remembering, [1, 2, 3], us.Sample(), max_new_tokens=9, seed=1)
    begun = next(first)
    other = us.generate(remembering, [1, 2, 3, 4], us.Sample(), max_new_tokens=9, seed=2)
    assert other == us.generate(model, [1, 2, 3, 4], us.Sample(), max_new_tokens=9, seed=2)
    tokens = [token for piece in (begun, *first) for token in piece.tokens]
    assert tuple(tokens) == us.generate(model, [1, 2, 3], us.Sample(), max_new_tokens=9, seed=1).tokens


def test_a_model_that_cannot_fork_is_refused(model):
    model.engine = "torch"
    try:
        with pytest.raises(ValueError, match="not compiled"):
            CachedPrefixModel(model, 1)
    finally:
        model.engine = None
