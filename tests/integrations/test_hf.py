import inspect

import pytest

import unspool as us
from unspool.decode.search import SEARCHES
from unspool.integrations import hf
from unspool.integrations.huggingface.custom_generate import CustomGenerate

INFILLING = {"MaskPredict", "MaskedDiffusion"}
"""Transformers does not support masked decoding."""


def snake(name):
    return "".join(
        f"_{it.lower()}" if it.isupper() and place else it.lower() for place, it in enumerate(name)
    )


def test_every_decoder_has_a_function_in_us_hf():
    names = {"mbr" if name == "MBR" else snake(name): name for name in {*SEARCHES, "Speculative"} - INFILLING}
    for ours, search in names.items():
        assert getattr(us, search).__name__ in inspect.getdoc(getattr(hf, ours))
    assert us.hf is hf


def test_decoders_keep_their_arguments():
    assert us.hf.beam(5, length_penalty=us.GNMT(0.6)) == CustomGenerate(
        us.Beam(5, length_penalty=us.GNMT(0.6))
    )
    assert us.hf.decoder(us.Greedy(), tokenizer=3).tokenizer == 3


def test_decoders_may_be_strings_or_the_default():
    assert us.hf.decoder("Beam(3)").decoder == us.Beam(3)
    assert us.hf.decoder(None).decoder == us.parse("Sample(Temperature(0.8), TopP(0.95))")


@pytest.mark.parametrize("wrong", [us.Greedy, us.TopP(0.9)])
def test_other_objects_are_rejected_as_decoders(wrong):
    with pytest.raises(TypeError, match="decoder"):
        us.hf.decoder(wrong)
