import math

import pytest
import torch

import unspool as us
from unspool.decode.hypothesis import Job
from unspool.decode.search.masked_decoding import MaskedText, require_infilling
from unspool.interfaces import Abilities
from unspool.testing import bigram

JOB = Job(((0,),), (9,), (1,), eos=frozenset({2}))


def test_a_path_grows_up_to_the_first_hidden_place_by_hand():
    canvas = MaskedText.blank(JOB.hypothesis(0, 0), 4, mask=9)
    assert canvas.masked == [0, 1, 2, 3]
    canvas.choose(0, 5, -0.5)
    canvas.choose(2, 2, -0.25)
    path = canvas.extend(canvas.hypothesis, JOB, last=False)
    assert (path.tokens, path.logps, path.finish_reason) == ((5,), (-0.5,), None)
    canvas.choose(1, 6, -1.0)
    path = canvas.extend(path, JOB, last=False)
    assert (path.tokens, path.finish_reason) == ((5, 6, 2), "eos")
    assert canvas.score == pytest.approx((-0.5 - 1.0 - 0.25) / 4)
    canvas.tokens[0] = canvas.mask
    assert canvas.masked == [0, 3]


def test_the_last_time_a_text_without_an_end_has_the_length_that_it_has():
    canvas = MaskedText.blank(JOB.hypothesis(0, 0), 1, mask=9)
    canvas.choose(0, 5, 0.0)
    assert canvas.extend(canvas.hypothesis, JOB, last=True).finish_reason == "length"


def test_a_model_that_says_one_token_after_another_is_refused():
    model = bigram(torch.full((3, 3), -math.log(3)))
    with pytest.raises(ValueError, match=r"MaskPredict\(.*\) needs a masked model, and a TableModel"):
        require_infilling(model, us.MaskPredict())


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


def mask_predict_ask(model, decoder, **options):
    return us.generate(model, [1], decoder, max_new_tokens=8, seed=0, **options)


def test_passes_by_hand():
    model = Places()
    out = mask_predict_ask(model, us.MaskPredict(3, lengths=1))
    # Pass 1: 4 3 3. Then 3·2/3 = 2 places are hidden, the unsure ones: 4 4 3. Then 1: 4 4 4.
    assert model.passes == [[[V, V, V]], [[4, V, V]], [[4, 4, V]]]
    assert out.tokens == (4, 4, 4)
    assert out.logps == pytest.approx([torch.tensor(HIGH).log().item()] * 3)


def test_one_pass_says_all_at_once():
    assert mask_predict_ask(Places(), us.MaskPredict(1, lengths=1)).tokens == (4, 3, 3)


def test_the_best_of_the_length_beam_is_taken_and_others_follow():
    model = Places(((3, -0.1), (1, -2.0), (2, -3.0)))
    two = mask_predict_ask(model, us.MaskPredict(1, lengths=3), n=2)
    assert [out.tokens for out in two] == [(4,), (4, 3)]
    assert two[0].total > two[1].total
    assert mask_predict_ask(model, us.MaskPredict(1, lengths=1)).tokens == (4, 3, 3)


def test_mask_predict_refuses_invalid_settings():
    with pytest.raises(ValueError, match="iterations"):
        us.MaskPredict(0)
    with pytest.raises(ValueError, match="n=3 is more than lengths=2"):
        mask_predict_ask(Places(), us.MaskPredict(2, lengths=2), n=3)
    assert us.parse("MaskPredict(4, lengths=2)") == us.MaskPredict(4, 2)


def masked_diffusion_ask(model, decoder, **options):
    return us.generate(model, [1], decoder, max_new_tokens=8, seed=0, **options)


def test_steps_by_hand():
    model = Places()
    out = masked_diffusion_ask(model, us.MaskedDiffusion(3))
    # The most certain place is shown in each step, and stays.
    assert model.passes == [[[V, V, V]], [[4, V, V]], [[4, 4, V]]]
    assert out.tokens == (4, 4, 4)


def test_one_step_says_all_at_once():
    assert masked_diffusion_ask(Places(), us.MaskedDiffusion(1)).tokens == (4, 3, 3)


def test_what_is_shown_is_streamed_from_the_beginning_on():
    pieces = list(us.stream(Places(), [1], us.MaskedDiffusion(3), max_new_tokens=8, seed=0))
    assert [piece.tokens for piece in pieces] == [(4,), (4,), (4,)]
    assert pieces[-1].finish_reason == "length"


def test_draws_depend_on_the_seed_and_the_sample_alone():
    decoder = us.MaskedDiffusion(2, temperature=1.5)
    several = us.generate(Places(), [[1], [1]], decoder, max_new_tokens=8, seed=[3, 4], n=8)
    alone = us.generate(Places(), [1], decoder, max_new_tokens=8, seed=4, n=8)
    assert [out.tokens for out in several[1]] == [out.tokens for out in alone]
    assert len({out.tokens for out in alone}) > 1


def test_every_prompt_and_every_repeat_of_it_draws_from_a_stream_of_its_own():
    decoder = us.MaskedDiffusion(2, temperature=9.0)

    def texts(prompts, **options):
        found = us.generate(Places(((7, 0.0),)), prompts, decoder, max_new_tokens=8, seed=4, **options)
        return [out.tokens for out in found]

    assert texts([[1]] * 6) == texts([1], n=6)
    assert len(set(texts([[1], [2], [3], [1, 2], [1], [2]]))) == 6


@pytest.mark.parametrize("steps", [1, 2, 5, 50])
def test_every_place_is_shown_in_the_end(steps):
    out = masked_diffusion_ask(Places(((7, 0.0),)), us.MaskedDiffusion(steps))
    assert len(out.tokens) == 7


def test_masked_diffusion_refuses_invalid_settings():
    with pytest.raises(ValueError, match="iterations"):
        us.MaskedDiffusion(0)
    with pytest.raises(ValueError, match="temperature"):
        us.MaskedDiffusion(3, temperature=-1.0)
    assert us.parse("MaskedDiffusion(4)") == us.MaskedDiffusion(4)
