import numpy as np
import pytest

from unspool.decode.picks import ArgMax
from unspool.decode.run import Run
from unspool.decode.search import Greedy, Sample
from unspool.decode.spec import as_decoder
from unspool.decode.transforms import Temperature, TopP
from unspool.testing import TableModel

MODEL = TableModel(lambda row: [0.25] * 4, context=6)


def job(**options):
    return Run(MODEL, [[0, 1], [2]], **{"max_new_tokens": 10, "seed": 3} | options).job


def test_limits_are_what_the_context_leaves():
    assert job().limits == (4, 5)
    assert job(max_new_tokens=2).limits == (2, 2)
    with pytest.raises(ValueError, match="prompt 0 has 6 tokens"):
        Run(MODEL, [[0] * 6], max_new_tokens=1)


def test_one_seed_serves_every_prompt_and_none_is_drawn():
    assert job(seed=np.int64(3)).seeds == (3, 3)
    assert job(seed=[4, 5]).seeds == (4, 5)
    first, second = job(seed=None).seeds
    assert first == second >= 0
    with pytest.raises(ValueError, match="1 seeds for 2 prompts"):
        job(seed=[4])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens is 0"),
        ({"n": 1.5}, TypeError, "n is 1.5"),
        ({"alternatives": 5}, ValueError, "alternatives is 5, which is more than 4"),
        ({"seed": "1"}, TypeError, "seed is '1'"),
        ({"stop": [1]}, TypeError, "give token ids as stop_ids"),
        ({"stop": "a"}, ValueError, "need a tokenizer"),
        ({"stop_ids": "a"}, TypeError, "stop_ids is 'a'"),
        ({"stop_ids": [4]}, ValueError, "outside the model's vocabulary"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
    ],
)
def test_invalid_arguments_are_refused_by_name(options, error, said):
    with pytest.raises(error, match=said):
        job(**options)


def test_a_decoder_is_returned_as_it_is_a_string_is_parsed_and_other_values_are_refused():
    greedy = Greedy()
    assert as_decoder(greedy) is greedy
    assert as_decoder("Greedy()") == greedy
    assert as_decoder(None) == Sample(Temperature(0.8), TopP(0.95))
    for wrong, said in (
        (Sample, "create one"),
        (ArgMax(), "not a decoder"),
        (3, "not a decoder"),
    ):
        with pytest.raises(TypeError, match=said):
            as_decoder(wrong)


@pytest.mark.parametrize(
    ("keywords", "decoder"),
    [
        ({"temperature": 0.8, "top_p": 0.9}, "Sample(Temperature(0.8), TopP(0.9))"),
        ({"min_p": 0.1}, "Sample(MinP(0.1))"),
        (
            {"min_p": 0.1, "top_p": 0.9, "top_k": 5, "temperature": 2, "repetition_penalty": 1.2},
            "Sample(RepetitionPenalty(1.2), Temperature(2), TopK(5), TopP(0.9), MinP(0.1))",
        ),
        ({"temperature": 0, "repetition_penalty": 1.2}, "Greedy(RepetitionPenalty(1.2))"),
        ({"temperature": None, "top_k": 3}, "Sample(TopK(3))"),
    ],
)
def test_sampler_keywords_build_a_sample_in_the_order_of_hugging_face(keywords, decoder):
    assert Run(MODEL, [0], **keywords).decoder == as_decoder(decoder)


def test_sampler_keywords_beside_a_decoder_and_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match=r"^give a decoder or temperature, top_p, not both$"):
        Run(MODEL, [0], Greedy(), top_p=0.9, temperature=1)
    with pytest.raises(TypeError, match="'top_q' is not a known option of generate: did you mean 'top_"):
        Run(MODEL, [0], top_q=0.9)
    with pytest.raises(TypeError, match=r"'num_beams' is an option of transformers: .* us.Beam\(4\)"):
        Run(MODEL, [0], num_beams=4)
    with pytest.raises(ValueError, match=r"TopP.p is 1.5"):
        Run(MODEL, [0], top_p=1.5)
