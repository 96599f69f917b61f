"""Every recipe is read; every tiny one is trained from the command line, and what it made is used."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import unspool as us
from unspool.cli import main
from unspool.cli.commands import command_parser
from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.tasks import TASKS
from unspool.training import read_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = RECIPES / "tiny"


@pytest.mark.parametrize(
    "path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: str(path.relative_to(RECIPES))
)
def test_a_recipe_is_read(path):
    recipe = read_recipe(path)
    assert f"unspool train {path.relative_to(RECIPES.parent)}" in path.read_text(encoding="utf-8")
    if recipe.pretrained is not None:  # it has its shape
        return
    labels = ("one", "other") if recipe.model["kind"] in ("classifier", "tagger") else ()
    assert recipe.model_config(10_000, labels).vocab_size == 10_000


@pytest.mark.parametrize(
    "path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: str(path.relative_to(RECIPES))
)
def test_the_commands_above_a_recipe_have_no_flag_that_does_not_exist(path):
    comment = re.sub(r"\\\n#", "", path.read_text(encoding="utf-8")).splitlines()
    commands = [shlex.split(line[1:])[1:] for line in comment if line.startswith("#   unspool ")]
    assert commands
    for argv in commands:
        args = command_parser().parse_args(argv)
        if args.command == "train":
            read_recipe(RECIPES.parent / args.recipe, args.set)
        elif args.command == "generate" and args.decoder:
            us.parse(args.decoder)


def test_every_recipe_has_a_tiny_twin():
    assert {path.name for path in RECIPES.glob("*.toml")} == {path.name for path in TINY.glob("*.toml")}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    def train(name):
        monkeypatch.chdir(TINY)
        assert (
            main(["train", f"{name}.toml", "--output", str(tmp_path / "run"), "--set", "train.threads=1"])
            == 0
        )
        return us.load(tmp_path / "run"), read_recipe(TINY / f"{name}.toml"), tmp_path / "run"

    return train


def share_right(model, task, count):
    rng = Random(0)
    pairs = [task.pair(rng) for _ in range(count)]
    outs = us.generate(model, [source for source, _ in pairs], us.Greedy(), max_new_tokens=40)
    return sum(out.text == target for out, (_, target) in zip(outs, pairs, strict=True)) / count


def test_a_transformer_learns_to_translate_dates(trained, curve_pictures):
    model, _, folder = trained("translation")
    assert share_right(model, TASKS["dates"](first_year=1800), 100) >= 0.95
    assert {path.name for path in folder.iterdir()} >= {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "curves.jsonl", "curves.svg",
    }  # fmt: skip
    curves = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    assert curves[0]["loss"] > 2 > 0.2 > curves[-1]["valid"]


@pytest.mark.long
def test_attention_learns_to_reverse_rows(trained):
    model, _, _ = trained("translation_rnn")
    assert share_right(model, TASKS["reverse"](), 100) >= 0.8


@pytest.mark.long
def test_a_language_model_comes_near_the_entropy_of_its_language(trained):
    model, recipe, folder = trained("language_model")
    language = LANGUAGES["zipf_markov"](word_count=60)
    assert recipe.data.known == language
    assert model.tokenizer.vocab_size == language.vocab_size
    curves = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    rng = Random(5)
    sentences = [language.sample(rng) for _ in range(300)]
    tokens = sum(len(sentence) + 1 for sentence in sentences)
    truth = -sum(language.log_prob(sentence) for sentence in sentences) / tokens
    assert truth < curves[-1]["valid"] < truth + 1.0
    assert curves[0]["nll"] > curves[-1]["valid"] + 1.0


def test_a_dialogue_is_answered(trained):
    model, _, _ = trained("dialogue")
    out = us.generate(model, "Is the fish fresh?", us.Greedy(), max_new_tokens=12)
    assert out.text == "It came this morning."
    assert out.finish_reason == "eos"


@pytest.mark.long
def test_a_chat_recipe_fine_tunes_an_existing_model(trained):
    model, _, folder = trained("chat")
    asked = [{"role": "user", "content": "Do you have apples?"}]
    out = us.generate(model, asked, us.Greedy(), max_new_tokens=12)
    assert out.text == "We have red ones and green ones."
    assert (folder / "adapters.safetensors").stat().st_size < 3_000_000


def test_letters_are_told_apart(trained, capsys):
    model, _, folder = trained("classifier")
    err = capsys.readouterr().err
    assert f'unspool predict "…" --model {folder}' in err
    assert "validation accuracy 100.0%" in err
    curves = [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]
    assert curves[-1]["accuracy"] == 1
    said = {
        "complaint": "The tea was bad and the rice was broken .",
        "order": "Please send me five eggs for Tuesday .",
        "question": "How much is the butter on Sunday ?",
        "thanks": "Thank you , the honey is wonderful .",
    }
    assert model.labels == tuple(said)
    assert [it.label for it in us.predict(model, list(said.values()))] == list(said)


def test_words_of_several_tokens_are_tagged_by_their_neighbours(trained):
    model, _, folder = trained("tagger")
    line = "the cook will gladly water my plant behind a lighthouse ."
    found = us.predict(model, line)
    assert [it.word for it in found] == line.split()
    assert len(model.tokenizer.encode(line)) > 1.5 * len(found)
    tags = "DET NOUN AUX ADV VERB DET NOUN ADP DET NOUN PUNCT"
    assert [it.label for it in found] == tags.split()
    assert [it.label for it in us.predict(model, "they cook the water .")] == [
        "PRON",
        "VERB",
        "DET",
        "NOUN",
        "PUNCT",
    ]
    assert main(["predict", "--model", str(folder), line]) == 0


def test_a_narrow_model_is_set_beside_its_language(trained, capsys):
    _, _, folder = trained("narrow")
    assert main(["diagnose", "bottleneck", str(folder), "--contexts", "200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rank"], found["limit"], found["conclusive"]) == (4, 4, True)
    assert found["truth"]["rank"] > 20
    assert found["truth"]["least"] < found["truth"]["reached"]


TREEBANK = """# sent_id = email-enron-0001
# text = Don't  go.
1-2\tDon't\t_\t_\t_
1\tDo\tdo\tAUX\t_
2\tn't\tnot\tPART\t_
3\tgo\tgo\tVERB\t_
3.1\tthere\tthere\tADV\t_
4\t.\t.\tPUNCT\t_

# sent_id = weblog-x-0001
# text = 10 000
1\t10 000\t10000\tNUM\t_

"""


def test_a_treebank_becomes_tags_and_genres(tmp_path):
    (tmp_path / "a.conllu").write_text(TREEBANK, encoding="utf-8")
    argv = [
        sys.executable,
        RECIPES / "conllu_to_tsv.py",
        tmp_path / "a.conllu",
        "--output",
        tmp_path / "ewt" / "a",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "a.tags.tsv: 2 sentences" in done.stdout
    assert (tmp_path / "ewt/a.tags.tsv").read_text() == "Do n't go .\tAUX PART VERB PUNCT\n10_000\tNUM\n"
    assert (tmp_path / "ewt/a.genres.tsv").read_text() == "email\tDon't go.\nweblog\t10 000\n"
