from itertools import pairwise

import pytest
import torch

from unspool.decode.generate import generate
from unspool.decode.loops import find_loop
from unspool.decode.search import Greedy
from unspool.models.trigram import TrigramConfig


def make(**changes):
    torch.manual_seed(0)
    return TrigramConfig(**{"vocab_size": 5, "width": 4, "inner_width": 6, **changes}).build().eval()


@torch.no_grad()
def test_by_its_equation():
    model = make(beta=1.5)
    e = model.embed.weight
    h = model.down.weight @ torch.tanh(model.up.weight @ torch.cat((e[3], e[1])) + model.up.bias)
    want = (1.5 * e @ (h + model.down.bias)).log_softmax(-1)
    torch.testing.assert_close(model(torch.tensor([[4, 3, 1]]))[0, -1], want)


@torch.no_grad()
def test_only_the_last_two_words_count():
    model = make()
    one, other = model(torch.tensor([[0, 1, 3, 2]])), model(torch.tensor([[4, 4, 3, 2]]))
    torch.testing.assert_close(one[:, -1], other[:, -1])
    assert not torch.allclose(one[:, -2], other[:, -2])


@torch.no_grad()
def test_a_single_word_counts_twice():
    model = make()
    torch.testing.assert_close(model(torch.tensor([[3]])), model(torch.tensor([[3, 3]]))[:, 1:])


@pytest.mark.parametrize("seed", range(5))
def test_without_randomness_it_goes_round_in_a_circle_within_v_squared_steps(seed):
    torch.manual_seed(seed)
    V = 5
    model = TrigramConfig(vocab_size=V, width=4, inner_width=6, beta=9.0).build().eval()
    tokens = [2, 1, *generate(model, [2, 1], Greedy(), max_new_tokens=4 * V * V).tokens]
    pairs = list(pairwise(tokens))
    again = next(t for t, pair in enumerate(pairs) if pair in pairs[:t])
    assert again <= V * V
    first = pairs.index(pairs[again])
    period = again - first
    assert all(tokens[t] == tokens[t + period] for t in range(first, len(tokens) - period))
    assert find_loop(tokens[first:]).period <= period


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 0.0}, "beta is 0.0, but must be a finite number, 0 < beta"),
        ({"inner_width": 0}, "inner_width"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
