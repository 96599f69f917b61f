import pytest

import unspool as us

from .test_mask_predict import Places, V


def ask(model, decoder, **options):
    return us.generate(model, [1], decoder, max_new_tokens=8, seed=0, **options)


def test_steps_by_hand():
    model = Places()
    out = ask(model, us.MaskedDiffusion(3))
    # The most certain place is shown in each step, and stays.
    assert model.passes == [[[V, V, V]], [[4, V, V]], [[4, 4, V]]]
    assert out.tokens == (4, 4, 4)


def test_one_step_says_all_at_once():
    assert ask(Places(), us.MaskedDiffusion(1)).tokens == (4, 3, 3)


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
    out = ask(Places(((7, 0.0),)), us.MaskedDiffusion(steps))
    assert len(out.tokens) == 7


def test_wrong_settings_are_said():
    with pytest.raises(ValueError, match="iterations"):
        us.MaskedDiffusion(0)
    with pytest.raises(ValueError, match="temperature"):
        us.MaskedDiffusion(3, temperature=-1.0)
    assert us.parse("MaskedDiffusion(4)") == us.MaskedDiffusion(4)
