"""Objects of other packages in decoder strings, recipes and run folders."""

import sys

import pytest
import torch

import unspool as us
from unspool.plugins import import_plugin, plugin_name

SOURCE = """
import unspool.plugins
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from unspool.data.examples import Texts
from unspool.data.rows import HeldOut
from unspool.decode.search import Greedy
from unspool.heads import PluginHeadConfig, SoftmaxHeadConfig
from unspool.objectives import CrossEntropy

open({marker!r}, "a").close()


@dataclass(frozen=True)
class Flatten:
    factor: float = 0.5

    def __call__(self, scores_NV, step, history):
        return scores_NV * self.factor


class MyDecoder:
    streams = True

    def __call__(self, model, job):
        return Greedy()(model, job)


@dataclass(frozen=True)
class MyHead(PluginHeadConfig):
    scale: float = 0.1

    def build(self, width, vocab_size, embed=None):
        head = SoftmaxHeadConfig(bias=True).build(width, vocab_size)
        with torch.no_grad():
            head.bias.fill_(self.scale)
        return head


@dataclass(frozen=True)
class MyObjective(CrossEntropy):
    factor: float = 2.0

    def __call__(self, model, batch, clock):
        loss = super().__call__(model, batch, clock)
        return type(loss)(self.factor * loss.total, loss.weight, loss.stats)


@dataclass(frozen=True, kw_only=True)
class MyData(HeldOut):
    count: int = 40

    def files(self):
        return {{}}

    def train_rows(self, advance):
        return (("a b " * (i % 3 + 1),) for i in range(self.count))

    def valid_rows(self, advance):
        return iter([("a b",)])

    def form(self, rows):
        return Texts()


def my_score(outputs, references):
    return sum(len(it) for it in outputs) / len(outputs)


def my_reward(output, reference):
    return float(len(output) < len(reference))
"""
UPDATES = {"updates": 2, "threads": 1, "final": "last", "validate_every": 2, "checkpoint_every": 2}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package my_package on sys.path; returns the file that exists after it is imported."""
    marker = tmp_path / "imported"
    (tmp_path / "my_package.py").write_text(SOURCE.format(marker=str(marker)), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield marker
    sys.modules.pop("my_package", None)


@pytest.fixture
def installed(package, tmp_path):
    """The same package with entry points."""
    about = tmp_path / "my_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(
        "[unspool.plugins]\nFlatten = my_package:Flatten\nmy_head = my_package:MyHead\n", encoding="utf-8"
    )
    return package


def recipe(**sections):
    return {
        "data": {"kind": "task", "task": {"kind": "copy"}, "train": 60, "valid": 6},
        "model": {"kind": "rnn_lm", "width": 8},
        "schedule": {"kind": "constant"},
        "train": UPDATES,
        **sections,
    }


def text_recipe(tmp_path, **sections):
    (tmp_path / "train.txt").write_text("a b a b\nb a b\n" * 20, encoding="utf-8")
    data = {"kind": "lines", "train": str(tmp_path / "train.txt"), "valid_lines": 4}
    return recipe(**{"data": data, "tokenizer": {"kind": "characters"}, **sections})


def refuses(call, package, named):
    """Check that a call names the code and the flag in one line and imports nothing."""
    with pytest.raises(ValueError, match=f"'{named}' would run Python code of 'my_package'") as caught:
        call()
    assert "--trust-code" in str(caught.value)
    assert "trust_code=True" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not package.exists()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("Sample(Temperature(0.8), my_package:Flatten(0.25), TopP(0.9))", "my_package:Flatten"),
        ("Sample(my_package:Flatten)", "my_package:Flatten"),
        ("my_package:MyDecoder()", "my_package:MyDecoder"),
    ],
)
def test_a_decoder_string_names_classes_of_other_packages(package, spec, named):
    refuses(lambda: us.parse(spec), package, named)
    decoder = us.parse(spec, trust_code=True)
    model = us.load("bible")
    assert us.generate(model, "In the", decoder, max_new_tokens=4, seed=1).text
    if "Temperature" in spec:
        assert decoder.transforms[1] == sys.modules["my_package"].Flatten(0.25)


def test_an_installed_plugin_needs_no_flag_and_round_trips(installed):
    decoder = us.parse("Sample(Flatten(0.25))")
    assert us.parse(repr(decoder)) == decoder
    assert us.parse("Sample(my_package:Flatten(0.25))") == decoder


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("Sample(my_package:Flatten(1, 2))", "my_package:Flatten failed with TypeError"),
        ("Sample(my_package:lost())", "does not define 'lost'"),
        ("Sample(no_such_package:It())", "cannot import the module 'no_such_package'"),
        ("my_package:Flatten(0.1)", "only a part of a decoder"),
        ("Sample(my_package:)", "is not a decoder"),
    ],
)
def test_mistakes_in_decoder_strings_are_one_line(package, spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        us.parse(spec, trust_code=True)
    assert "\n" not in str(caught.value)


def test_colons_in_string_arguments_are_text(package):
    decoder = us.parse('Sample(Grammar(regex="a:b"), my_package:Flatten())', trust_code=True)
    assert decoder.transforms[0].regex == "a:b"


def test_a_head_of_another_package_is_trained_saved_loaded_and_resumed(package, tmp_path):
    out = tmp_path / "run"
    table = text_recipe(
        tmp_path, model={"kind": "rnn_lm", "width": 8, "head": {"kind": "my_package:MyHead", "scale": 0.5}}
    )
    refuses(lambda: us.train(table, out), package, "my_package:MyHead")
    us.train(table, out, trust_code=True)
    package.unlink()
    del sys.modules["my_package"]
    refuses(lambda: us.load(out), package, "my_package:MyHead")
    more = {"resume": True, "changes": ["train.updates=3"]}
    refuses(lambda: us.train(out / "recipe.toml", out, **more), package, "my_package:MyHead")
    us.train(out / "recipe.toml", out, trust_code=True, **more)
    model = us.load(out, trust_code=True)
    assert model.config.head == sys.modules["my_package"].MyHead(0.5)


def test_an_installed_head_needs_no_flag(installed, tmp_path):
    table = text_recipe(tmp_path, model={"kind": "rnn_lm", "width": 8, "head": {"kind": "my_head"}})
    us.train(table, tmp_path / "run")
    assert us.load(tmp_path / "run").config.head.scale == 0.1
    assert plugin_name(import_plugin("my_head", "head")) == "my_head"


def test_an_objective_of_another_package(package, tmp_path):
    table = text_recipe(tmp_path, objective={"kind": "my_package:MyObjective", "factor": 3.0})
    refuses(lambda: us.train(table), package, "my_package:MyObjective")
    us.train(table, trust_code=True)


def test_data_of_another_package(package):
    table = recipe(data={"kind": "my_package:MyData", "count": 30}, tokenizer={"kind": "characters"})
    refuses(lambda: us.train(table), package, "my_package:MyData")
    assert us.train(table, trust_code=True).tokenizer.encode("a b")


def test_a_measure_and_a_reward_of_another_package(package):
    pairs = {"model": {"kind": "rnn_seq2seq", "width": 8}, "tokenizer": {"kind": "characters"}}
    measured = recipe(**pairs, train={**UPDATES, "measure": "my_package:my_score", "final": "best"})
    refuses(lambda: us.train(measured), package, "my_package:my_score")
    us.train(measured, trust_code=True)
    sys.modules.pop("my_package")
    package.unlink()
    rewarded = recipe(**pairs, objective={"kind": "reinforce", "reward": "my_package:my_reward"})
    refuses(lambda: us.train(rewarded), package, "my_package:my_reward")
    us.train(rewarded, trust_code=True)


def test_a_kind_must_be_a_dataclass(package, tmp_path):
    with pytest.raises(
        ValueError, match=r"\[objective\] kind = 'my_package:my_score' is .* must be a dataclass"
    ):
        us.train(text_recipe(tmp_path, objective={"kind": "my_package:my_score"}), trust_code=True)


def test_trust_ends_with_the_call(package):
    us.parse("Sample(my_package:Flatten())", trust_code=True)
    with pytest.raises(ValueError, match="--trust-code"):
        us.parse("Sample(my_package:Flatten())")
    assert torch.is_tensor(sys.modules["my_package"].Flatten()(torch.ones(1, 2), None, ()))
