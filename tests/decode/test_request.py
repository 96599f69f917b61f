import numpy as np
import pytest

from unspool.decode.picks import ArgMax
from unspool.decode.request import make_job
from unspool.decode.search import Greedy, Sample
from unspool.decode.spec import as_decoder
from unspool.decode.transforms import Temperature, TopP
from unspool.testing import TableModel

MODEL = TableModel(lambda row: [0.25] * 4, context=6)


def job(**options):
    return make_job(MODEL, [[0, 1], [2]], **{"max_new_tokens": 10, "n": 1, "seed": 3, "stop": ()} | options)


def test_limits_are_what_the_context_leaves():
    assert job().limits == (4, 5)
    assert job(max_new_tokens=2).limits == (2, 2)
    with pytest.raises(ValueError, match="prompt 0 has 6 tokens"):
        make_job(MODEL, [[0] * 6], max_new_tokens=1, n=1, seed=0, stop=())


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
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens=0"),
        ({"n": 1.5}, TypeError, "n=1.5"),
        ({"alternatives": 5}, ValueError, "from 0 to 4"),
        ({"seed": "1"}, TypeError, "seed='1'"),
        ({"stop": [1]}, TypeError, "go into stop_ids"),
        ({"stop": "a"}, ValueError, "need a tokenizer"),
        ({"stop_ids": "a"}, TypeError, "stop_ids='a'"),
        ({"stop_ids": [4]}, ValueError, "outside the model's vocabulary"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(options, error, said):
    with pytest.raises(error, match=said):
        job(**options)


def test_a_decoder_is_returned_as_it_is_a_string_is_parsed_and_other_values_are_refused():
    greedy = Greedy()
    assert as_decoder(greedy) is greedy
    assert as_decoder("Greedy()") == greedy
    assert as_decoder(None) == Sample(Temperature(0.8), TopP(0.95))
    for wrong, said in (
        (Sample, "create one"),
        (ArgMax(), "not a decoder: wrap it"),
        (3, "not a decoder"),
    ):
        with pytest.raises(TypeError, match=said):
            as_decoder(wrong)
