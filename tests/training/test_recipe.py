import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

from unspool.heads import HEADS, KerbsHeadConfig
from unspool.models import TransformerConfig
from unspool.models.lora import LoRA
from unspool.objectives import AttentionFocus, AttentionNear, AuxiliarySettings, CrossEntropy, WeightedSum
from unspool.tokenization import Words
from unspool.training import recipe
from unspool.training.hooks import KerbsReallocate
from unspool.training.optim import Cosine, InverseSqrt
from unspool.training.recipe import SECTIONS, Pretrained, apply_changes, parse_recipe, read_recipe

MODEL = {
    "kind": "transformer_lm",
    **{"width": 8, "layers": 1, "heads": 2, "kv_heads": 2, "head_width": 4, "inner_width": 8, "context": 16},
}
PLAIN = {
    "seed": 4,
    "data": {"kind": "lines", "train": "x.txt"},
    "tokenizer": {"kind": "characters"},
    "model": MODEL,
    "train": {"updates": 10},
}


def test_defaults():
    recipe = parse_recipe(PLAIN)
    assert recipe.objective == CrossEntropy()
    assert recipe.schedule == InverseSqrt()
    assert recipe.seed == 4
    assert recipe.train.updates == 10


def test_sections_choose(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        tomli_w.dumps({**PLAIN, "schedule": {"kind": "cosine", "warmup": 3}, "objective": {"smoothing": 0.1}})
    )
    recipe = read_recipe(
        path, ["train.lr=0.5", "train.betas=[0.8, 0.9]", "data.train=y.txt", "schedule.floor=0"]
    )
    assert recipe.schedule == Cosine(3, 0.0)
    assert recipe.objective == CrossEntropy(0.1)
    assert recipe.train.lr == 0.5
    assert recipe.train.betas == (0.8, 0.9)
    assert recipe.data.train == "y.txt"
    assert read_recipe(path).data.train == "x.txt"


def test_the_vocabulary_is_the_texts():
    recipe = parse_recipe(PLAIN)
    assert recipe.model_config(30) == TransformerConfig(
        **{key: it for key, it in MODEL.items() if key != "kind"}, vocab_size=30
    )
    with pytest.raises(ValueError, match="vocab_size=20 is too small for the 30 tokens"):
        parse_recipe({**PLAIN, "model": {**MODEL, "vocab_size": 20}}).model_config(30)


def test_labels_are_the_datas():
    encoder = {"kind": "transformer", **{"width": 8, "layers": 1, "heads": 2, "inner_width": 8}}
    model = {"kind": "classifier", "encoder": encoder}
    recipe = parse_recipe({**PLAIN, "model": model})
    assert recipe.model_config(30, ("bad", "good")).labels == ("bad", "good")
    with pytest.raises(ValueError, match="labels"):
        recipe.model_config(30)
    with pytest.raises(ValueError, match="the data has labels"):
        parse_recipe(PLAIN).model_config(30, ("bad", "good"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"trian": {}}, "did you mean 'train'"),
        ({"train": {"updates": 1, "wramup": 3}}, "wramup"),
        ({"data": {"kind": "line"}}, "did you mean 'lines'"),
        ({"data": {"train": "x"}}, 'lacks "kind"'),
        ({"tokenizer": {"kind": "bpee", "vocab_size": 300}}, "did you mean 'bpe'"),
        ({"tokenizer": {"kind": "bpe", "dropout": 1.0}}, r"tokenizer\.dropout is 1\.0, but must be"),
        (
            {"tokenizer": {"kind": "bpe", "dropout": 0.1}, "batches": {"kind": "packed", "rows": 2}},
            r"tokenizer\.dropout needs batches of whole texts",
        ),
        ({"model": {**MODEL, "wdith": 3}}, "did you mean 'width'"),
        ({"model": {"kind": "transformer_lm"}}, "lacks"),
        ({"objective": {"kind": "cross"}}, "cross_entropy"),
        ({"schedule": {"kind": "cosin"}}, "did you mean 'cosine'"),
        ({"seed": "one"}, "a whole number"),
        ({"seed": True}, "a whole number"),
        ({"train": 3}, "a table"),
        ({"hooks": [{"kind": "nothing"}]}, "nothing"),
        ({"hooks": {"kind": "nothing"}}, "a list of tables"),
        (
            {"hooks": [{"kind": "kerbs_reallocate"}], "train": {"updates": 1, "final": "average"}},
            "final = .average. does not work with kerbs_reallocate",
        ),
        (
            {"hooks": [{"kind": "kerbs_reallocate"}], "train": {"updates": 1, "shard": True}},
            "train.shard does not work with kerbs_reallocate",
        ),
    ],
)
def test_invalid_recipes_are_refused_before_data_is_read(wrong, said):
    with pytest.raises(ValueError, match=said):
        parse_recipe({**PLAIN, **wrong})


@pytest.mark.parametrize("section", ["data", "tokenizer", "model", "train"])
def test_a_section_that_is_missing_is_named(section):
    with pytest.raises(ValueError, match=rf"lacks the section \[{section}\]"):
        parse_recipe({key: it for key, it in PLAIN.items() if key != section})


def test_changes_leave_the_original_alone():
    settings = {"a": {"b": 1}}
    assert apply_changes(settings, ["a.b=2", "c.d.e=x", 'f="1"', "g=true"]) == {
        "a": {"b": 2},
        "c": {"d": {"e": "x"}},
        "f": "1",
        "g": True,
    }
    assert settings == {"a": {"b": 1}}


def test_a_length_takes_the_place_of_the_other():
    assert apply_changes({"train": {"updates": 9}}, ["train.epochs=2"]) == {"train": {"epochs": 2}}
    assert apply_changes({"train": {"epochs": 2.0}}, ["train.updates=9"]) == {"train": {"updates": 9}}
    both = apply_changes({"train": {}}, ["train.updates=9", "train.epochs=2"])
    assert both == {"train": {"updates": 9, "epochs": 2}}  # which is refused


@pytest.mark.parametrize("change", ["a.b", "=3", "a..b=1", "a.b.c=1"])
def test_a_change_that_cannot_be_made_is_refused(change):
    with pytest.raises(ValueError, match="--set"):
        apply_changes({"a": {"b": 1}}, [change])


def test_a_file_that_is_no_toml_is_named(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("[train\n")
    with pytest.raises(ValueError, match=r"recipe.toml is not valid TOML"):
        read_recipe(path)
    path.write_text("[train]\nupdates = 3\n")
    with pytest.raises(ValueError, match=r"recipe.toml: the recipe lacks"):
        read_recipe(path)


def test_every_section_is_documented():
    page = (Path(__file__).resolve().parents[2] / "docs/training.md").read_text(encoding="utf-8")
    for section in SECTIONS:
        name = section.name
        said = "seed =" if name == "seed" else f"[[{name}]]" if section.is_list else f"[{name}]"
        assert said in recipe.__doc__, name
        assert said in page, name


def test_the_recipe_of_the_page_is_one_and_so_is_its_head_with_its_hook():
    page = (Path(__file__).resolve().parents[2] / "docs/training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    whole, part, beside, reward, sides, begun = (tomllib.loads(block) for block in blocks)
    assert parse_recipe(whole).hooks == ()
    assert parse_recipe(whole | beside).auxiliary == ((AttentionFocus(), AuxiliarySettings(0.1, 500)),)
    assert parse_recipe(whole | reward).auxiliary[0][0].reward == "chrf"
    assert parse_recipe(whole | sides).tokenizer.side("target") == Words()
    train = {"train": whole["train"] | begun["train"]}
    assert parse_recipe(begun | train).pretrained == Pretrained("smollm2", LoRA(8, 16.0))
    found = parse_recipe({**whole, **part, "model": whole["model"] | part["model"]})
    assert found.model_config(100).head == KerbsHeadConfig(senses=2.0)
    assert found.hooks == (KerbsReallocate(every=50),)
    comment = re.search(r"^head = .*# (.*)$", page, re.M)[1]
    assert [name.split()[0] for name in comment.split(", ")] == list(HEADS)


def test_paths_lead_to_their_files_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = recipe.with_absolute_paths(
        parse_recipe({**PLAIN, "data": {"kind": "lines", "train": "x.txt", "valid": "/v.txt"}})
    )
    assert found.data.train == found.settings["data"]["train"] == str(tmp_path / "x.txt")
    assert found.data.valid == "/v.txt"
    several = recipe.with_absolute_paths(
        parse_recipe({**PLAIN, "data": {"kind": "lines", "train": ["x.txt", "/y.txt"]}})
    )
    assert several.data.train == (str(tmp_path / "x.txt"), "/y.txt")
    made = parse_recipe({**PLAIN, "data": {"kind": "task", "task": {"kind": "copy"}}})
    assert recipe.with_absolute_paths(made) is made


def test_what_objectives_read_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trees.conllu").touch()
    (tmp_path / "teacher").mkdir()
    heads = {"kind": "dependency_heads", "treebank": "trees.conllu", "weight": 0.5}
    taught = {"objective": {"kind": "distillation", "teacher": "teacher"}, "auxiliary": [heads]}
    found = recipe.with_absolute_paths(parse_recipe({**PLAIN, **taught}))
    assert found.objective.teacher == str(tmp_path / "teacher")
    ((beside, share),) = found.auxiliary
    assert beside.treebank == found.settings["auxiliary"][0]["treebank"] == str(tmp_path / "trees.conllu")
    assert share.weight == 0.5
    named = parse_recipe({**PLAIN, "objective": {"kind": "distillation", "teacher": "smollm2"}})
    assert recipe.with_absolute_paths(named).objective.teacher == "smollm2"


def test_sources_with_a_vocabulary_of_their_own_need_an_encoder_decoder():
    separate = {"kind": "separate", "source": {"kind": "words"}, "target": {"kind": "characters"}}
    with pytest.raises(ValueError, match="needs an encoder–decoder"):
        parse_recipe({**PLAIN, "tokenizer": separate})
    pairs = {"data": {"kind": "tsv", "train": "x.tsv"}, "tokenizer": separate}
    model = {"kind": "rnn_seq2seq", "width": 8, "bos": 1, "eos": 2}
    found = parse_recipe({**PLAIN, **pairs, "model": model})
    assert found.model_config(30, (), 50).source_vocab_size == 50
    with pytest.raises(ValueError, match="source_vocab_size=40 is too small for the 50 tokens"):
        parse_recipe({**PLAIN, **pairs, "model": {**model, "source_vocab_size": 40}}).model_config(30, (), 50)


def test_objectives_stand_beside_the_main_one():
    tables = [{"kind": "attention_focus", "weight": 0.5, "begin": 3}, {"kind": "attention_near", "cap": 9.0}]
    found = parse_recipe({**PLAIN, "auxiliary": tables})
    assert found.auxiliary == (
        (AttentionFocus(), AuxiliarySettings(0.5, 3)),
        (AttentionNear(9.0), AuxiliarySettings()),
    )
    assert found.total_objective == WeightedSum(CrossEntropy(), found.auxiliary)
    assert parse_recipe(PLAIN).total_objective == CrossEntropy()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "attention_fokus"}, "did you mean 'attention_focus'"),
        ({"kind": "attention_focus", "wait": 1.0}, "'wait' is not a known key of .auxiliary.0."),
        (
            {"kind": "attention_focus", "weight": -1.0},
            r"auxiliary\.0\.weight is -1\.0, but must be a finite number, 0 ≤ weight",
        ),
        ({"weight": 1.0}, 'auxiliary.0. lacks "kind"'),
    ],
)
def test_a_wrong_table_beside_the_objective_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe({**PLAIN, "auxiliary": [table]})
    with pytest.raises(ValueError, match="double brackets"):
        parse_recipe({**PLAIN, "auxiliary": table})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": {"kind": "reinforce"}}, "reinforce, which runs extra batches"),
        ({"auxiliary": [{"kind": "sequence_unlikelihood"}]}, "sequence_unlikelihood"),
        ({"auxiliary": [{"kind": "attention_focus"}]}, r"losses on attention \(attention_focus\)"),
        ({"train": {"updates": 1, "measure": "bleu"}}, 'train.measure = "bleu"'),
    ],
)
def test_sharded_weights_refuse_what_needs_whole_weights(changes, said):
    made = {**PLAIN, **changes}
    parse_recipe(made)
    with pytest.raises(ValueError, match=f"train.shard does not work with .*{said}") as refused:
        parse_recipe({**made, "train": {**made["train"], "shard": True}})
    assert "\n" not in str(refused.value)
