import math
from random import Random

import pytest
import torch

import unspool as us
from unspool.decode.rng import stream_key
from unspool.integrations.vllm.sequences import (
    MAX_DECODER_CHARS,
    PLACEHOLDER_TOKEN,
    DrawnToken,
    RunningSequence,
    request_decoder,
)


def test_request_decoder_is_parsed(engine):
    decoder = request_decoder(engine.params("Sample(Temperature(0.8), TopP(0.9))"))
    assert decoder.transforms == (us.Temperature(0.8), us.TopP(0.9))
    assert decoder.pick == us.decode.Multinomial()
    assert request_decoder(engine.params("Greedy(MinLength(3))")).pick == us.ArgMax()


def test_requests_without_a_decoder_give_none(engine):
    assert request_decoder(engine.params()) is None
    assert request_decoder(engine.params(temperature=0.3)) is None
    assert request_decoder(engine.params(extra_args={"another": "Sample()"}, top_p=0.5)) is None


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("Beam(4)", "one token at a time.*use Sample or Greedy"),
        ("Sampel()", "unknown decoder 'Sampel': did you mean 'Sample'"),
        ("TopP(0.9)", r"write Sample\(TopP\(0.9\)\)"),
        ("Sample(TopP(2))", "TopP.p is 2"),
        ("Sample(TopP('x'))", "TopP.p is 'x'"),
        ("Sample(TopP(0.9), Beam(2))", "Beam"),
        ("", "is not a decoder"),
        ("(" * 5000, "is not a decoder"),
        ("x" * (MAX_DECODER_CHARS + 1), f"at most {MAX_DECODER_CHARS} characters"),
        (7, "must be a decoder string"),
        (["Sample()"], "must be a decoder string"),
        ("Sample(Speculative())", "contains a model"),
    ],
)
def test_invalid_request_decoders_are_rejected(decoder, message, engine):
    with pytest.raises(ValueError, match=message):
        request_decoder(engine.params(decoder))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5),
        ("temperature", 0.0),
        ("top_p", 0.9),
        ("top_k", 40),
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
    ],
)
def test_sampling_params_conflict_with_a_decoder(name, value, engine):
    with pytest.raises(ValueError, match=f"'unspool'. conflicts with {name}={value}"):
        request_decoder(engine.params("Sample(TopH(0.4))", **{name: value}))


@pytest.mark.parametrize(
    "name", ["logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "min_tokens"]
)
def test_basis_aware_rejects_params_that_change_logits(name, engine):
    changed = {name: 3 if name == "min_tokens" else [3]}
    with pytest.raises(ValueError, match=f"{name} changes them"):
        request_decoder(engine.params("Sample(BasisAware(0.1))", **changed))
    assert request_decoder(engine.params('Sample(BasisAware(0.1, on="processed"))', **changed)) is not None
    assert request_decoder(engine.params("Sample(TopP(0.9))", **changed)) is not None
    assert request_decoder(engine.params("Sample(BasisAware(0.1))", top_k=-1)) is not None


def drawing(text, token):
    """Draw one random number and record a token."""
    state = text.rng.getstate()
    drawn = text.rng.random()
    text.drawn = DrawnToken(text.extended(token, -1.0, -0.5), state)
    return drawn


@pytest.fixture
def text():
    return RunningSequence(None, 7, (4, 5), frozenset({2}))


def test_a_sequence_grows_by_accepted_tokens(text):
    rng = Random(stream_key(7, (4, 5), 0))
    assert text.synchronise(0, PLACEHOLDER_TOKEN)
    drawn = [drawing(text, 10)]
    assert text.synchronise(1, 10)
    drawn.append(drawing(text, 11))
    assert text.synchronise(2, PLACEHOLDER_TOKEN)
    assert drawn == [rng.random(), rng.random()]
    assert (text.hypothesis.prompt, text.hypothesis.tokens) == ((4, 5), (10, 11))
    assert (text.hypothesis.logps, text.hypothesis.scores) == ((-1.0, -1.0), (-0.5, -0.5))


def test_a_discarded_token_restores_the_random_stream(text):
    thrown = [drawing(text, 10) for _ in range(3) if text.synchronise(0, PLACEHOLDER_TOKEN)]
    assert thrown == [Random(stream_key(7, (4, 5), 0)).random()] * 3
    assert text.output == ()


def test_a_different_token_is_detected(text):
    drawing(text, 10)
    assert not text.synchronise(1, 12)
    assert not text.synchronise(3, PLACEHOLDER_TOKEN)


def test_earlier_tokens_are_part_of_the_prompt_and_skip_their_draws():
    text = RunningSequence(None, 7, (4,), frozenset(), tokens=(8, 9))
    assert text.hypothesis.prompt == (4, 8, 9)
    rng = Random(stream_key(7, (4,), 0))
    assert [rng.random() for _ in range(3)][2] == text.rng.random()
    assert text.synchronise(2, 9)
    assert text.output == (8, 9)


def test_a_preempted_sequence_is_recognised(text):
    drawing(text, 10)
    assert text.can_resume([4, 5], [])
    assert text.can_resume([4, 5], [10])
    assert not text.can_resume([4, 5], [11])
    assert not text.can_resume([4], [10])


DECODER = "Sample(Temperature(0.9), TopP(0.9))"


def drawn(logits, row):
    """The only possible token of a row."""
    assert (logits[row] > -math.inf).sum() == 1
    return int(logits[row].argmax())


def test_only_the_drawn_token_is_possible(texts, engine):
    requested = texts.begin(engine.params(DECODER), engine.prompts[0], [])
    logits = engine.logits([1, 0])
    others = logits[0].clone()
    texts.draw(logits, [(1, requested)])
    assert drawn(logits, 1) == engine.expected(DECODER, 1, 0, 1)[0]
    assert torch.equal(logits[0], others)


def test_requests_without_a_decoder_are_ignored(texts, engine):
    assert texts.begin(engine.params(), engine.prompts[0], []) is None


def test_rows_with_one_decoder_are_drawn_together_and_independent(texts, engine):
    seeds = [3, 3, 5]
    rows = [texts.begin(engine.params(DECODER, seed=seed), engine.prompts[0], []) for seed in seeds]
    assert len({id(text.decoder) for text in rows}) == 1
    logits = engine.logits([0, 0, 0])
    texts.draw(logits, list(enumerate(rows)))
    assert [drawn(logits, row) for row in range(3)] == [
        engine.expected(DECODER, seed, 0, 1)[0] for seed in seeds
    ]


def test_without_a_seed_torch_is_used(texts, engine):
    torch.manual_seed(0)
    first = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    second = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    torch.manual_seed(0)
    again = texts.begin(engine.params(DECODER, seed=None), engine.prompts[0], [])
    assert first.seed == again.seed != second.seed


def test_an_error_ends_only_its_request(texts, engine, log):
    requested = ["Sample(LogitBias({1000: 1.0}))", "Sample(LogitBias({9999: 1.0}))", "Sample(TopP(0.9))"]
    rows = [texts.begin(engine.params(one), engine.prompts[0], []) for one in requested]
    logits = engine.logits([0, 0, 0])
    texts.draw(logits, list(enumerate(rows)))
    assert drawn(logits, 1) == engine.eos
    assert [drawn(logits, row) for row in (0, 2)] == [
        engine.expected(one, 1, 0, 1)[0] for one in requested[::2]
    ]
    assert len(log) == 1
    assert "was ended: ValueError: LogitBias.bias holds the token ids [9999]" in log[0]


def test_an_error_in_a_group_does_not_affect_other_random_streams(texts, engine, log):
    rows = [texts.begin(engine.params(DECODER, seed=seed), engine.prompts[0], []) for seed in (1, 2)]
    logits = engine.logits([0, 0])
    logits[0] = math.nan
    texts.draw(logits, list(enumerate(rows)))
    assert drawn(logits, 0) == engine.eos
    assert drawn(logits, 1) == engine.expected(DECODER, 2, 0, 1)[0]
    assert len(log) == 1


@pytest.mark.parametrize(
    ("decoder", "others", "message"),
    [
        ("Beam(2)", {}, "one token at a time"),
        ("Sample(BasisAware(0.1, rank=5000))", {}, "BasisAware.rank is 5000"),
        (
            "Sample(MinLength(3))",
            {"eos_token_id": None, "all_stop_token_ids": set()},
            "does not name an end-of-text token",
        ),
    ],
)
def test_requests_that_cannot_be_bound_end_with_their_first_token(
    decoder, others, message, texts, engine, log
):
    text = texts.begin(engine.params(decoder, **others), engine.prompts[0], [])
    logits = engine.logits([0])
    texts.draw(logits, [(0, text)])
    assert drawn(logits, 0) == (0 if others else engine.eos)
    assert message in log[0]


def test_a_preempted_sequence_resumes(texts, engine):
    decoder = "Sample(BasisAware(0.3))"  # rejections: how often it rolled cannot be told from its tokens
    wanted = engine.expected(decoder, 1, 0, 12)
    for place in range(12):
        if place % 3 == 0:
            text = texts.begin(engine.params(decoder), engine.prompts[0], engine.tokens[0])
        assert text.synchronise(place, engine.tokens[0][-1] if place else -1)
        logits = engine.logits([0])
        texts.draw(logits, [(0, text)])
        engine.tokens[0].append(drawn(logits, 0))
        if place % 3 == 2:
            texts.remove(text)
    assert engine.tokens[0][: len(wanted)] == wanted
