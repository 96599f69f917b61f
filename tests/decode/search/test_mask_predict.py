import pytest
import torch

import unspool as us
from unspool.interfaces import Abilities

V = 5
LOW, HIGH = 0.4, 0.9


class Places(Abilities):
    """Says 3 at each place, unsure; where its left neighbour is shown (or is the edge), it is sure of 4."""

    vocab_size, context, tokenizer = V, None, None

    def __init__(self, lengths=((3, -0.1),)):
        self._lengths, self.passes = lengths, []

    @property
    def infilling(self):
        return self

    def start(self, prompts):
        raise ValueError("no")

    step = start

    def lengths(self, prompts, limits, most):
        return [[it for it in self._lengths if it[0] <= limit][:most] for limit in limits]

    def fill(self, prompts, texts):
        self.passes.append([list(text) for text in texts])
        return [torch.stack([self._place(text, at) for at in range(len(text))]) for text in texts]

    def _place(self, text, at):
        sure = at == 0 or text[at - 1] != V
        token, p = (4, HIGH) if sure else (3, LOW)
        rest = torch.full((V,), (1 - p) / (V - 1))
        rest[token] = p
        return rest.log()


def ask(model, decoder, **options):
    return us.generate(model, [1], decoder, max_new_tokens=8, seed=0, **options)


def test_passes_by_hand():
    model = Places()
    out = ask(model, us.MaskPredict(3, lengths=1))
    # Pass 1: 4 3 3. Then 3·2/3 = 2 places are hidden, the unsure ones: 4 4 3. Then 1: 4 4 4.
    assert model.passes == [[[V, V, V]], [[4, V, V]], [[4, 4, V]]]
    assert out.tokens == (4, 4, 4)
    assert out.logps == pytest.approx([torch.tensor(HIGH).log().item()] * 3)


def test_one_pass_says_all_at_once():
    assert ask(Places(), us.MaskPredict(1, lengths=1)).tokens == (4, 3, 3)


def test_the_best_of_the_length_beam_is_taken_and_others_follow():
    model = Places(((3, -0.1), (1, -2.0), (2, -3.0)))
    two = ask(model, us.MaskPredict(1, lengths=3), n=2)
    assert [out.tokens for out in two] == [(4,), (4, 3)]
    assert two[0].total > two[1].total
    assert ask(model, us.MaskPredict(1, lengths=1)).tokens == (4, 3, 3)


def test_wrong_settings_are_said():
    with pytest.raises(ValueError, match="iterations"):
        us.MaskPredict(0)
    with pytest.raises(ValueError, match="n=3 is more than lengths=2"):
        ask(Places(), us.MaskPredict(2, lengths=2), n=3)
    assert us.parse("MaskPredict(4, lengths=2)") == us.MaskPredict(4, 2)
