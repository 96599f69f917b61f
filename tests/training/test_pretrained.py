import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import unspool as us
from unspool.models.loading.lora_file import ADAPTERS
from unspool.models.lora import find_adapters
from unspool.models.transformer_lm import TransformerConfig
from unspool.tokenization import train_bpe
from unspool.training import Stopped, train
from unspool.training.recipe import Pretrained, parse_recipe, with_absolute_paths

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TALK = "\n".join(f"say {word} __eou__ {word} {word} __eou__ thanks" for word in ("ab", "ba", "aab") * 8)
TOKENS = torch.tensor([[5, 70, 90, 66]])
ALL = ["attention.qkv", "attention.out", "feed_forward.up", "feed_forward.down"]


@pytest.fixture
def base(tmp_path):
    """A tiny model that was taught to chat, more or less."""
    text = replace(train_bpe([TALK], 300), chat_template=TEMPLATE, literal=False)
    torch.manual_seed(0)
    model = TransformerConfig(vocab_size=300, width=16, layers=2, heads=2, inner_width=24, context=64).build(
        text
    )
    us.save(model.eval(), tmp_path / "base")
    return model


@pytest.fixture
def recipe(base, tmp_path):
    (tmp_path / "talk.txt").write_text(TALK + "\n", encoding="utf-8")
    return {
        "data": {"kind": "chat_lines", "train": str(tmp_path / "talk.txt"), "valid_lines": 4},
        "batches": {"tokens": 128},
        "model": {"from": str(tmp_path / "base"), "lora": {"rank": 2, "targets": ALL, "dropout": 0.1}},
        "schedule": {"kind": "constant", "warmup": 1},
        "train": {"updates": 12, "lr": 0.02, "validate_every": 6, "checkpoint_every": 4},
    }


class Interrupting:
    has_progress_bar = False

    def __init__(self, update=None, by=signal.SIGTERM):
        self.update, self.by, self.notes = update, by, []

    def note(self, text):
        self.notes.append(text)

    warn = note

    def follow(self, updates, run):
        for done in updates:
            if done.clock.update == self.update:
                os.kill(os.getpid(), self.by)


def equal(one, other):
    return all(torch.equal(it, other.state_dict()[name]) for name, it in one.state_dict().items())


def test_adapters_alone_learn_and_the_run_holds_the_merged_model_and_them(recipe, base, tmp_path):
    reporter = Interrupting()
    trained = train(recipe, tmp_path / "run", reporter=reporter)
    assert any(note.startswith("training 800 of ") for note in reporter.notes)
    assert find_adapters(trained) == {}
    assert trained.engine == "compiled"
    assert torch.equal(trained.embed.weight, base.embed.weight)
    assert not torch.equal(trained.blocks[0].attention.qkv.weight, base.blocks[0].attention.qkv.weight)
    again = us.load(tmp_path / "base")
    us.models.load_adapters(again, tmp_path / "run")
    torch.testing.assert_close(again(TOKENS), trained(TOKENS), atol=1e-5, rtol=0)


def test_it_learns_what_was_answered_and_answers(recipe, tmp_path):
    recipe["model"].pop("lora")
    trained = train(recipe, tmp_path / "run", changes=["train.updates=60", "train.validate_every=60"])
    out = us.generate(trained, [{"role": "user", "content": "say aab"}], us.Greedy(), max_new_tokens=20)
    assert (out.text, out.finish_reason) == ("aab aab", "eos")


@pytest.mark.parametrize("what", ["lora", "all", "frozen"])
def test_stopped_and_resumed_is_bit_equal(recipe, tmp_path, what):
    if what != "lora":
        recipe["model"].pop("lora")
    if what == "frozen":
        recipe["model"]["frozen"] = ["embed", "blocks.0"]
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Stopped, match="after update 6 of 12"):
        train(recipe, tmp_path / "run", reporter=Interrupting(5))
    reporter = Interrupting()
    resumed = train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True, reporter=reporter)
    assert "resuming after update 6" in reporter.notes
    assert equal(whole, resumed)
    if what == "lora":
        one, other = (load_file(tmp_path / name / ADAPTERS) for name in ("whole", "run"))
        assert all(torch.equal(it, other[name]) for name, it in one.items())


@pytest.mark.parametrize("at", [1, 5, 11])
def test_killed_and_resumed_is_bit_equal(recipe, tmp_path, at):
    whole = train(recipe, tmp_path / "whole")
    child = os.fork()
    if child == 0:
        try:
            train(recipe, tmp_path / "run", reporter=Interrupting(at, signal.SIGKILL))
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert equal(whole, train(recipe, tmp_path / "run", resume=True))


def test_frozen_parts_stand_still(recipe, base, tmp_path):
    recipe["model"] = {"from": str(tmp_path / "base"), "frozen": ["embed", "blocks.0"]}
    trained = train(recipe, changes=["train.updates=2"])
    still = {name for name, it in base.named_parameters() if torch.equal(it, trained.state_dict()[name])}
    assert still == {name for name in base.state_dict() if name.startswith(("embed", "blocks.0"))}


def test_recomputing_changes_no_bit(recipe, tmp_path):
    plain = train(recipe, changes=["train.updates=3"])
    assert equal(plain, train(recipe, changes=["train.updates=3", "train.recompute=true"]))


def test_the_adapters_of_another_model_are_refused(recipe, base, tmp_path):
    train(recipe, tmp_path / "run", changes=["train.updates=4"])
    with torch.no_grad():
        base.embed.weight.add_(1.0)
    us.save(base, tmp_path / "base")
    before = sorted(it.name for it in (tmp_path / "run").rglob("*"))
    with pytest.raises(ValueError, match=r"its adapters belong to another model than model\.from"):
        train(recipe, tmp_path / "run", resume=True)
    assert sorted(it.name for it in (tmp_path / "run").rglob("*")) == before


def test_full_fine_tuning_resumes_without_the_base_model(recipe, tmp_path):
    recipe["model"].pop("lora")
    whole = train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "run", changes=["train.updates=4"])
    (tmp_path / "base").rename(tmp_path / "gone")
    assert equal(whole, train(recipe, tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.lora.rank=4"], r"model\.lora\.rank was 2, is 4"),
        (["model.lora.targets=['attention.qkv']"], r"model\.lora\.targets was"),
    ],
)
def test_settings_of_adapters_cannot_change(recipe, tmp_path, changes, message):
    train(recipe, tmp_path / "run", changes=["train.updates=4"])
    with pytest.raises(ValueError, match=message):
        train(recipe, tmp_path / "run", resume=True, changes=changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tokenizer": {"kind": "bpe"}},
            r"brings its own vocabulary: remove \[tokenizer\]",
        ),
        ({"model": {"from": "bible", "kind": "transformer_lm"}}, r"excludes model\.kind"),
        (
            {"model": {"from": "bible", "lora": {"rank": 0}}},
            r"model\.lora\.rank is 0, but must be a whole number ≥ 1",
        ),
        ({"model": {"from": "bible", "lora": {"ranks": 2}}}, "did you mean 'rank'"),
        ({"model": {"from": "bible", "layers": 2}}, r"'layers' is not a known key of \[model\]"),
        ({"model": {"from": "bible", "lora": {}, "frozen": ["embed"]}}, r"remove model\.frozen"),
        ({"train": {"updates": 2, "final": "average"}}, "final = .average. does not work with model.lora"),
        ({"train": {"updates": 2, "shard": True}}, "train.shard does not work with model.lora"),
    ],
)
def test_contradictions_are_refused_before_anything_is_read(recipe, change, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(recipe | change)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"from": "bibel"}, "no model 'bibel'"),
        ({"from": "bible"}, "the vocabulary has none"),
        (
            {"frozen": ["block"]},
            r"model\.frozen names 'block', but the model's parts are blocks, embed, norm",
        ),
        ({"lora": {"targets": ["q_proj"]}}, "no matrix of the TransformerLM is called 'q_proj'"),
    ],
)
def test_missing_parts_of_the_model_are_named(recipe, tmp_path, model, message):
    recipe["model"] = {"from": str(tmp_path / "base")} | model
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bos": 9}, "starts its outputs with token 9, but training data starts targets with BOS"),
        ({"source_bos": True}, "and its sources with a BOS, but training data"),
    ],
)
def test_an_encoder_decoder_with_other_start_tokens_is_refused(tmp_path, options, message):
    """As BART, Marian and T5 are."""
    shape = us.models.TransformerSeq2SeqConfig(
        vocab_size=300, width=8, heads=2, inner_width=8, encoder_layers=1, decoder_layers=1
    )
    text = train_bpe([TALK], 300)
    us.save(shape.build(text), tmp_path / "plain")
    assert Pretrained(str(tmp_path / "plain")).load_model(None).is_encoder_decoder
    us.save(replace(shape, **options).build(text), tmp_path / "other")
    with pytest.raises(ValueError, match=message):
        Pretrained(str(tmp_path / "other")).load_model(None)


def test_a_path_is_made_absolute_and_a_name_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    plain = {"data": {"kind": "lines", "train": "x.txt"}, "train": {"updates": 1}}
    found = with_absolute_paths(parse_recipe({**plain, "model": {"from": "base"}}))
    assert found.pretrained.from_ == str(tmp_path / "base")
    named = with_absolute_paths(parse_recipe({**plain, "model": {"from": "smollm2"}}))
    assert named.pretrained.from_ == "smollm2"
