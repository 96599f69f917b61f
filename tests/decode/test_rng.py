"""Every text draws from a random stream of its own: hash(seed, prompt tokens, sample)."""

import itertools
import subprocess
import sys
from random import Random

import numpy as np
import pytest
from scipy.stats import chi2_contingency, kstest

from unspool.decode.combine import Contrast, Ensemble, Guidance
from unspool.decode.generate import generate, stream
from unspool.decode.hypothesis import Job
from unspool.decode.search import MBR, BeamSample, Sample, Speculative, StochasticBeam
from unspool.decode.transforms import XTC, Temperature, TopP
from unspool.testing import TableModel, bigram, random_table

MODEL = random_table(30, seed=5)
DRAFT = random_table(30, seed=6)
SAMPLERS = [
    Sample(),
    Sample(Temperature(1.3), TopP(0.9)),
    Sample(XTC(0.05, 0.5)),
    Speculative(DRAFT, length=3),
]
RANKERS = [BeamSample(3), StochasticBeam(3), MBR(4), MBR(4, Sample(XTC(0.05, 0.5)))]


def name_of(decoder):
    """A test id that is the same in every process: the draft model's repr holds an address."""
    return "Speculative" if isinstance(decoder, Speculative) else repr(decoder)


PROMPTS = [[3, 4], [5], [3], [7, 8, 9], [4, 3]]


def texts(prompts, decoder=None, **options):
    """The tokens of every text, in order, with all samples of a prompt after each other."""
    options = {"seed": 9, "max_new_tokens": 12, **options}
    found = generate(MODEL, prompts, decoder or Sample(), **options)
    if isinstance(prompts[0], int):
        found = [found]
    groups = [group if isinstance(group, list) else [group] for group in found]
    return [out.tokens for group in groups for out in group]


@pytest.mark.parametrize("decoder", SAMPLERS, ids=name_of)
def test_a_repeated_prompt_is_the_next_sample_of_it(decoder):
    ten = texts([3], decoder, n=10)
    assert texts([[3]] * 10, decoder) == ten
    assert len(set(ten)) > 8
    mixed = texts([[3], [5], [3], [5], [3]], decoder)
    assert mixed == [ten[0], texts([5], decoder)[0], ten[1], texts([[5]] * 2, decoder)[1], ten[2]]


@pytest.mark.parametrize("decoder", SAMPLERS, ids=name_of)
def test_repeats_with_n_go_on_where_the_occurrence_before_stopped(decoder):
    assert texts([[3]] * 3, decoder, n=2) == texts([3], decoder, n=6)


@pytest.mark.parametrize("decoder", [*SAMPLERS, *RANKERS], ids=name_of)
def test_a_prompt_alone_gives_its_first_occurrence_in_any_batch_and_order(decoder):
    alone = {tuple(prompt): texts(prompt, decoder)[0] for prompt in PROMPTS}
    for order in itertools.islice(itertools.permutations(PROMPTS), 0, None, 40):
        assert texts(order, decoder) == [alone[tuple(prompt)] for prompt in order]
    assert texts([*PROMPTS, *PROMPTS], decoder)[: len(PROMPTS)] == [
        alone[tuple(prompt)] for prompt in PROMPTS
    ]


@pytest.mark.parametrize("decoder", RANKERS, ids=name_of)
def test_a_ranking_search_draws_anew_for_a_repeated_prompt(decoder):
    assert len(set(texts([[3]] * 6, decoder))) > 3


@pytest.mark.parametrize("decoder", [*SAMPLERS, *RANKERS], ids=name_of)
@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_the_batch_size_changes_no_text(decoder, batch_size):
    prompts = [*PROMPTS, [3], [5]]
    assert texts(prompts, decoder, n=2, batch_size=batch_size) == texts(prompts, decoder, n=2)


def test_a_stream_gives_the_texts_of_generate():
    heard = {}
    for piece in stream(MODEL, [[3], [5], [3]], Sample(), n=2, seed=9, max_new_tokens=12):
        key = piece.request, piece.sample
        heard[key] = (*heard.get(key, ()), *piece.tokens)
    assert [heard[key] for key in sorted(heard)] == texts([[3], [5], [3]], n=2)


def test_prompts_with_seeds_of_their_own_are_counted_by_prompt_and_seed():
    own = texts([[3], [3], [3]], seed=[1, 2, 1])
    assert own == [texts([3], seed=1)[0], texts([3], seed=2)[0], texts([3], seed=1, n=2)[1]]


def test_without_a_seed_every_call_and_every_row_draws_something_else():
    first, second = (texts([[3]] * 5, seed=None) for _ in range(2))
    assert len({*first, *second}) > 8


def test_a_model_made_of_models_draws_by_the_prompt_of_the_user():
    plain = texts(PROMPTS)
    for model in (Ensemble((MODEL, MODEL)), Guidance(MODEL, 1.0, negative=[1])):
        found = generate(model, PROMPTS, Sample(), seed=9, max_new_tokens=12)
        assert [out.tokens for out in found] == plain
    contrast = Contrast(MODEL, DRAFT)
    assert generate(contrast, [[3]] * 2, Sample(), seed=9) == generate(contrast, [3], Sample(), seed=9, n=2)


def test_the_source_of_an_encoder_decoder_is_its_prompt():
    job = Job(((3,), (5,), (3,)), (4,) * 3, (9,) * 3, is_encoder_decoder=True)
    plain = Job(((3,), (5,), (3,)), (4,) * 3, (9,) * 3)
    assert [job.stream_key(request) for request in range(3)] == [plain.stream_key(r) for r in range(3)]
    assert len({job.stream_key(request) for request in range(3)}) == 3


def uniform_rows(prompts, draws=64, size=1024, **options):
    """(N, T): what every row drew, uniform on (0, 1), as a model shows it for which all tokens are alike."""
    found = generate(
        TableModel(lambda row: [1.0] * size, size),
        prompts,
        Sample(),
        max_new_tokens=draws,
        **options,
    )
    flat = [out for each in found for out in (each if isinstance(each, list) else [each])]
    return (np.array([out.tokens for out in flat]) + 0.5) / size


@pytest.mark.parametrize(
    ("prompts", "options"),
    [
        pytest.param([[i] for i in range(120)], {"seed": 1}, id="different prompts"),
        pytest.param([[7, i] for i in range(120)], {"seed": 2}, id="prompts that begin alike"),
        pytest.param([[0] * (1 + i) for i in range(120)], {"seed": 3}, id="prompts of one token"),
        pytest.param([[7]] * 120, {"seed": 4}, id="one prompt again and again"),
        pytest.param([[7]], {"seed": 5, "n": 120}, id="samples"),
        pytest.param([[7]] * 120, {"seed": list(range(120))}, id="neighbouring seeds"),
    ],
)
def test_the_draws_of_a_batch_are_uniform_and_uncorrelated(prompts, options):
    u_NT = uniform_rows(prompts, **options)
    assert kstest(u_NT.ravel(), "uniform").pvalue > 1e-3
    N, T = u_NT.shape
    r = np.corrcoef(u_NT)[np.triu_indices(N, 1)] * np.sqrt(T)
    assert np.abs(r).max() < 5.5  # the largest of 7,140 standard normals, but for one case in ten thousand
    assert abs((r**2).mean() - 1) < 0.1
    steps = np.corrcoef(u_NT.T)[np.triu_indices(T, 1)] * np.sqrt(N)
    assert np.abs(steps).max() < 5.5


@pytest.mark.parametrize("same", [False, True], ids=["different prompts", "one prompt"])
def test_texts_of_one_batch_are_independent(same):
    rows = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]]
    prompts = [[0] if same else [*map(int, np.base_repr(i, 3)), 0] for i in range(3000)]
    found = [out.tokens for out in generate(bigram(rows), prompts, Sample(), seed=1, max_new_tokens=2)]
    counts = np.zeros((9, 9))
    for one, other in zip(found[::2], found[1::2], strict=True):
        counts[3 * one[0] + one[1], 3 * other[0] + other[1]] += 1
    assert chi2_contingency(counts).pvalue > 1e-3


def test_what_speculation_and_beams_draw_differs_from_prompt_to_prompt():
    flat = bigram([[0.25] * 4] * 4)
    draft = bigram([[0.4, 0.3, 0.2, 0.1]] * 4)
    for decoder in (Speculative(draft), Sample(XTC(0.1, 0.5)), BeamSample(2), StochasticBeam(2)):
        found = generate(
            flat, [[i] * k for i in range(4) for k in (1, 2, 3)], decoder, seed=1, max_new_tokens=9
        )
        assert len({out.tokens for out in found}) > 9, decoder


def test_a_stream_is_the_same_on_every_machine_and_in_every_process():
    from unspool.decode.rng import stream_key, uniform

    key = stream_key(7, (4, 5), 2)
    assert f"{key:064x}" == "475aec017e7604031f64fb5f67232142702d199b95794c31b2be9f40804c360e"
    assert Random(key).random() == 0.4872828137825653
    assert uniform(key, (1, 2)) == 0.37099075535908355
    code = "from unspool.decode.rng import stream_key; print(stream_key(7, (4, 5), 2))"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(again.stdout) == key


def test_everything_that_names_a_stream_changes_its_key():
    from unspool.decode.rng import stream_key

    keys = [
        stream_key(*named)
        for named in [
            (1, (2, 3), 0),
            (1, (2, 3), 1),
            (2, (2, 3), 0),
            (-1, (2, 3), 0),
            (1, (3, 2), 0),
            (1, (2,), 0, (3,)),
            (1, (2, 3, 0), 0),
            (12, (3,), 0),
            (2**70, (2, 3), 0),
        ]
    ]
    assert len(set(keys)) == len(keys)


def test_samples_of_a_corpus_that_several_calls_answer_are_counted_over_all_of_it():
    from unspool.decode.rng import SampleCounter

    counter = SampleCounter()
    assert counter.first_samples(["a", "b", "a"], n=3) == (0, 0, 3)
    assert counter.first_samples(["b", "a", "c"]) == (3, 6, 0)
