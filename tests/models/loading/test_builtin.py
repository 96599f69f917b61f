from pathlib import Path

import pytest
import torch

import unspool as us
from unspool.models.loading.model_names import BUILTIN, builtin_folder
from unspool.training import read_recipe

RECIPES = Path(__file__).parents[3] / "recipes" / "builtin"


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_models_match_their_recipes(name):
    recipe = read_recipe(RECIPES / f"{name}.toml")
    model = us.load(name)
    assert model.config == recipe.model_config(model.vocab_size)
    assert not model.training
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert f"ship.py runs/{name} {name}" in (RECIPES / f"{name}.toml").read_text()


def test_builtin_models_are_small():
    files = [path for name in BUILTIN for path in builtin_folder(name).iterdir()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in files) <= 6_000_000


def test_bible_perplexity():
    model, weak = us.load("bible"), us.load("bible-weak")
    row = model.tokenizer.encode(
        "And it happened, when the king heard the words of the book of the law, that he tore his clothes."
    )
    tokens = torch.tensor([row])

    def surprise(chosen):
        with torch.inference_mode():
            logp = chosen(tokens)[0, :-1]
        return -logp.gather(1, tokens[0, 1:, None]).mean()

    assert model.tokenizer.decode(row) == weak.tokenizer.decode(row)
    assert surprise(model) < surprise(weak) < torch.tensor(float(model.vocab_size)).log() - 2


def test_bible_weak_works_for_contrast_and_drafts():
    strong, weak = us.load("bible"), us.load("bible-weak")
    out = us.generate(us.Contrast(strong, weak), "He said to them,", us.Beam(3), max_new_tokens=6)
    assert len(out.tokens) == 6
    plain = us.generate(strong, "He said to them,", us.Greedy(), max_new_tokens=12)
    assert (
        us.generate(strong, "He said to them,", us.Speculative(weak, us.ArgMax()), max_new_tokens=12).tokens
        == plain.tokens
    )


def test_dates_translates_dates():
    dates = {
        "the 5th of May, 1921": "1921-05-05",
        "Friday, July 4, 2025": "2025-07-04",
        "31.12.1999": "1999-12-31",
        "1 Feb 2004": "2004-02-01",
        "August 23rd, 1973": "1973-08-23",
    }
    outs = us.generate(us.load("dates"), list(dates), us.Beam(3), max_new_tokens=12)
    assert [out.text for out in outs] == list(dates.values())


@pytest.mark.parametrize("name", BUILTIN)
def test_control_tokens_cannot_be_spelled_in_builtin_models(name):
    text = us.load(name).tokenizer
    ids = text.encode("a <eos> b <pad><bos>")
    assert {0, 1, 2}.isdisjoint(ids[1:] if text.add_bos else ids)
    assert text.decode([3]) == "<unk>"
