import pytest

import unspool as us
from unspool.integrations.vllm.sequences import MAX_DECODER_CHARS, request_decoder


def test_a_decoder_is_read_from_the_request(engine):
    found = request_decoder(engine.params("Sample(Temperature(0.8), TopP(0.9))"))
    assert found.transforms == (us.Temperature(0.8), us.TopP(0.9))
    assert found.pick == us.decode.Multinomial()
    assert request_decoder(engine.params("Greedy(MinLength(3))")).pick == us.ArgMax()


def test_a_request_that_names_none_is_left_alone(engine):
    assert request_decoder(engine.params()) is None
    assert request_decoder(engine.params(temperature=0.3)) is None
    assert request_decoder(engine.params(extra_args={"another": "Sample()"}, top_p=0.5)) is None


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("Beam(4)", "one token at a time.*give a Sample or a Greedy"),
        ("Sampel()", "unknown decoder 'Sampel': did you mean 'Sample'"),
        ("TopP(0.9)", r"wrap it, as in Sample\(TopP\(0.9\)\)"),
        ("Sample(TopP(2))", "TopP.p is 2"),
        ("Sample(TopP('x'))", "TopP.p is 'x'"),
        ("Sample(TopP(0.9), Beam(2))", "Beam"),
        ("", "is not a decoder"),
        ("(" * 5000, "is not a decoder"),
        ("x" * (MAX_DECODER_CHARS + 1), f"at most {MAX_DECODER_CHARS} characters"),
        (7, "must be a decoder as text"),
        (["Sample()"], "must be a decoder as text"),
        ("Sample(Speculative())", "holds a second model"),
    ],
)
def test_what_is_no_decoder_is_refused_where_the_request_arrives(decoder, message, engine):
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
def test_one_of_the_two_says_how_a_token_is_chosen(name, value, engine):
    with pytest.raises(ValueError, match=f"'unspool'. and {name}={value} both say how a token is chosen"):
        request_decoder(engine.params("Sample(TopH(0.4))", **{name: value}))


@pytest.mark.parametrize(
    "name", ["logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "min_tokens"]
)
def test_basis_aware_sampling_wants_the_models_own_probabilities(name, engine):
    changed = {name: 3 if name == "min_tokens" else [3]}
    with pytest.raises(ValueError, match=f"{name} changes them before it sees them"):
        request_decoder(engine.params("Sample(BasisAware(0.1))", **changed))
    assert request_decoder(engine.params('Sample(BasisAware(0.1, on="processed"))', **changed)) is not None
    assert request_decoder(engine.params("Sample(TopP(0.9))", **changed)) is not None
    assert request_decoder(engine.params("Sample(BasisAware(0.1))", top_k=-1)) is not None
