import argparse
import json
import math
from argparse import Namespace

import pytest
import torch

import unspool as us
from unspool.cli.models import (
    add_combination_options,
    load_labeller,
    load_model,
    load_options,
    model_name,
    named_models,
)
from unspool.decode.run import Run
from unspool.models.encoders import RNNEncoderConfig
from unspool.models.loading.model_names import PACKAGES, ModelPackage
from unspool.models.loading.run_folder import save
from unspool.tokenization import train_words

PROMPT = "He said to them,"
BIBLE = ("generate", PROMPT, "--model", "bible", "--max-new-tokens", "8", "--json")


def ask(*argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bible")
    add_combination_options(parser)
    return named_models(parser.parse_args(argv))


def record(out):
    return json.loads(out)


def test_a_weak_model_makes_a_contrast(unspool):
    strong, weak = us.load("bible"), us.load("bible-weak")
    expected = us.generate(us.Contrast(strong, weak), PROMPT, us.Beam(3), max_new_tokens=8)
    status, out, err = unspool(*BIBLE, "--weak", "bible-weak", "--decoder", "Beam(3)")
    assert (status, err) == (0, "")
    found = record(out)
    assert found["text"] == expected.text
    assert found["total"] == pytest.approx(expected.total, abs=1e-4)
    assert found["model"] == "bible"
    assert found["weak"] == "bible-weak"


@pytest.mark.parametrize(
    "decoder", ["Greedy(RepetitionPenalty(1.5))", "Sample(TopP(0.9))", "Sample(ArgMax())"]
)
def test_a_draft_makes_it_speculative(unspool, monkeypatch, decoder):
    asked = []
    real = Run.finished

    def finished(run):
        asked.append(run.decoder)
        return real(run)

    monkeypatch.setattr(Run, "finished", finished)
    argv = ("--draft", "bible-weak", "--decoder", decoder, "--seed", "1")
    status, out, _ = unspool(*BIBLE, *argv)
    assert status == 0
    (search,) = asked
    assert isinstance(search, us.Speculative)
    found = record(out)
    assert us.parse(found["decoder"]) == us.parse(decoder)  # which can be parsed, as a model cannot
    assert found["draft"] == "bible-weak"
    if "Sample(TopP" not in decoder:
        plain = record(unspool(*BIBLE, "--decoder", decoder)[1])
        assert found["text"] == plain["text"]


@pytest.mark.parametrize("second", [(), ("--weak", "bible-weak")])
def test_drafts_may_be_looked_up_in_the_text(unspool, second):
    plain = record(unspool(*BIBLE, *second, "--greedy")[1])
    found = record(unspool(*BIBLE, *second, "--greedy", "--draft", "lookup")[1])
    assert (found["text"], found["draft"]) == (plain["text"], "lookup")


def test_a_draft_for_a_contrast(unspool):
    second = ("--weak", "bible-weak", "--greedy")
    plain = record(unspool(*BIBLE, *second)[1])
    found = record(unspool(*BIBLE, *second, "--draft", "bible-weak")[1])
    assert found["text"] == plain["text"]
    assert not math.isnan(sum(found["logps"]))


def test_what_nothing_can_be_drafted_for_is_refused_before_a_model_is_loaded(unspool, loaded):
    status, _, err = unspool("generate", "a", "--draft", "small", "--decoder", "Beam(4)")
    assert (status, loaded) == (2, [])
    assert err == "unspool: --draft works with Greedy and Sample, not with Beam(4)\n"


def test_models_that_do_not_fit_are_refused_in_words(unspool):
    status, _, err = unspool(*BIBLE, "--weak", "dates")
    assert status == 2
    assert "combine models of one kind" in err


def test_guidance_is_the_models_own():
    found = ask("--guidance", "2", "--negative-prompt", "And he said")
    model, draft = found.load({})
    assert draft is None
    expected = us.generate(
        us.Guidance(model.model, 2.0, "And he said"), PROMPT, us.Greedy(), max_new_tokens=8, seed=1
    )
    assert us.generate(model, PROMPT, us.Greedy(), max_new_tokens=8, seed=1) == expected
    assert found.record() == {"model": "bible", "guidance": 2.0, "negative_prompt": "And he said"}
    with pytest.raises(ValueError, match="--guidance X"):
        ask("--negative-prompt", "x")


@pytest.fixture(params=[us.models.ClassifierConfig, us.models.TaggerConfig])
def run(request, tmp_path):
    """The folder of a model that chooses labels."""
    torch.manual_seed(0)
    text = train_words(["a b"])
    encoder = RNNEncoderConfig(width=4)
    config = request.param(vocab_size=text.vocab_size, labels=("x", "y"), encoder=encoder)
    save(config.build(text), tmp_path / "run")
    return tmp_path / "run"


def test_each_kind_is_loaded_by_those_it_is_for(run, loaded, monkeypatch):
    speaker = load_model(Namespace(model="tiny", device="cpu"))
    assert (speaker.vocab_size, loaded) == (4, [("tiny", "cpu")])
    with pytest.raises(ValueError, match="tiny generates text and does not label it"):
        load_labeller(Namespace(model="tiny", device="cpu"))
    monkeypatch.undo()
    assert load_labeller(Namespace(model=run, device="cpu")).labels == ("x", "y")


@pytest.mark.parametrize(
    "argv",
    [
        ("generate", "a", "--model", "RUN"),
        ("compare", "a", "--model", "RUN"),
        ("diagnose", "picture", "RUN", "a", "--figure", "PICTURE"),
        ("diagnose", "thresholds", "RUN", "--text", "TEXT"),
        ("diagnose", "bottleneck", "RUN"),
        ("diagnose", "senses", "RUN"),
    ],
    ids=lambda argv: " ".join(argv[:2]),
)
def test_a_verb_that_needs_text_says_what_such_a_model_is_for(unspool, run, tmp_path, argv):
    (tmp_path / "text.txt").write_text("a b a")
    named = {"RUN": run, "PICTURE": tmp_path / "ranks.svg", "TEXT": tmp_path / "text.txt"}
    status, out, err = unspool(*(named.get(arg, arg) for arg in argv))
    kind = type(us.load(run)).__name__.lower()
    assert (status, out) == (2, "")
    assert err == (
        f'unspool: {run} is a {kind} and does not generate text; try: unspool predict --model {run} "…"\n'
    )


def test_options_become_arguments_of_load():
    args = Namespace(model="tiny", device="cpu", weights="int8", engine=None, seed=3)
    assert load_options(args) == {"device": "cpu", "weights": "int8"}


def test_the_model_that_was_asked_for(capsys):
    assert model_name("dates") == "dates"
    assert model_name(None) == "smollm2"
    assert capsys.readouterr().err == ""


def test_falling_back_to_the_built_in_model_is_reported(capsys, monkeypatch):
    monkeypatch.setitem(PACKAGES, "smollm2", ModelPackage("no_such_module", "*.gguf", "pip install it"))
    assert model_name(None) == "bible"
    assert capsys.readouterr().err == (
        "unspool: smollm2 is not installed (pip install it): using the built-in model bible\n"
    )
