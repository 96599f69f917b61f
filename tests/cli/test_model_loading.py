from argparse import Namespace

import pytest
import torch

import unspool as us
from unspool.cli.models import chosen_model, load_labeller, load_speaker, loading
from unspool.models.encoders import RNNEncoderConfig
from unspool.models.loading.model_names import PACKAGES, ModelPackage
from unspool.models.loading.run_folder import save_folder
from unspool.tokenization import train_words


@pytest.fixture(params=[us.models.ClassifierConfig, us.models.TaggerConfig])
def run(request, tmp_path):
    """The folder of a model that chooses labels."""
    torch.manual_seed(0)
    text = train_words(["a b"])
    encoder = RNNEncoderConfig(width=4)
    config = request.param(vocab_size=text.vocab_size, labels=("x", "y"), encoder=encoder)
    save_folder(config.build(text), tmp_path / "run")
    return tmp_path / "run"


def test_each_kind_is_loaded_by_those_it_is_for(run, loaded, monkeypatch):
    speaker = load_speaker(Namespace(model="tiny", device="cpu"))
    assert (speaker.vocab_size, loaded) == (4, [("tiny", "cpu")])
    with pytest.raises(ValueError, match="tiny says text and chooses no labels"):
        load_labeller(Namespace(model="tiny", device="cpu"))
    monkeypatch.undo()
    assert load_labeller(Namespace(model=run, device="cpu")).labels == ("x", "y")


@pytest.mark.parametrize(
    "argv",
    [
        ("generate", "a", "--model", "RUN"),
        ("compare", "a", "--model", "RUN"),
        ("diagnose", "picture", "RUN", "a", "-o", "PICTURE"),
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
        f"unspool: {run} is a {kind}: it chooses labels and says no text. "
        f'unspool predict --model {run} "…" asks it\n'
    )


def test_what_the_options_tell():
    args = Namespace(model="tiny", device="cpu", weights="int8", engine=None, seed=3)
    assert loading(args) == {"device": "cpu", "weights": "int8"}


def test_the_model_that_was_asked_for(capsys):
    assert chosen_model("dates") == "dates"
    assert chosen_model(None) == "smollm2"
    assert capsys.readouterr().err == ""


def test_the_second_choice_is_said(capsys, monkeypatch):
    monkeypatch.setitem(PACKAGES, "smollm2", ModelPackage("no_such_module", "*.gguf", "pip install it"))
    assert chosen_model(None) == "bible"
    assert capsys.readouterr().err == (
        "unspool: smollm2 is not installed (pip install it), so that the built-in model bible speaks\n"
    )
