from types import SimpleNamespace

import pytest

from unspool.decode.prompts import tokens_left


@pytest.mark.parametrize(
    ("context", "answers", "prompt", "expected"),
    [
        (None, False, 9, None),
        (None, True, 9, None),
        (16, False, 12, 4),
        (16, False, 16, 0),
        (16, False, 20, -4),
        (16, True, 12, 15),
        (16, True, 15, 15),
        (1, True, 1, 1),
    ],
)
def test_a_prompt_takes_room_and_a_source_none(context, answers, prompt, expected):
    model = SimpleNamespace(context=context, is_encoder_decoder=answers, prompts_read=lambda _: ())
    assert tokens_left(model, [3] * prompt) == expected
