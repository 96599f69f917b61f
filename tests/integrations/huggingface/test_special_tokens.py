from types import SimpleNamespace

import pytest

from unspool.integrations.huggingface.causal_model import (
    SpecialTokens,
    as_token_ids,
    generation_setting,
    model_eos_ids,
)


def model(generation=None, **config):
    return SimpleNamespace(
        generation_config=None if generation is None else SimpleNamespace(**generation),
        config=SimpleNamespace(**config),
    )


def test_what_generate_is_told_goes_first():
    told = model({"eos_token_id": [2, 7], "pad_token_id": None}, eos_token_id=3, pad_token_id=0)
    assert model_eos_ids(told) == {2, 7}
    assert generation_setting(told, "pad_token_id") == 0
    assert generation_setting(told, "bos_token_id") is None


@pytest.mark.parametrize(("value", "found"), [(None, set()), (2, {2}), ([2, 3], {2, 3}), ((4,), {4})])
def test_one_several_or_none(value, found):
    assert as_token_ids(value) == found


def test_an_answer_begins_with_the_decoders_own_token_or_with_bos():
    assert SpecialTokens.of(model(eos_token_id=2, bos_token_id=1, decoder_start_token_id=0), None).bos == 0
    assert SpecialTokens.of(model(eos_token_id=2, bos_token_id=1), None).bos == 1
    with pytest.raises(ValueError, match="do not say which token begins an answer"):
        SpecialTokens.of(model(eos_token_id=2), None)


def test_nothing_is_taken_off_a_source():
    ends = SpecialTokens(1, frozenset({2, 3}))
    assert ends.source([1, 5]) == [1, 5, 2]
    assert ends.source([1, 5, 3]) == [1, 5, 3]
