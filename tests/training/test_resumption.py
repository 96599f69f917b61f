from dataclasses import replace

import pytest

from unspool.data import Lines, TaggedLines
from unspool.training.recipe import Change, find_changes, flatten_settings, parse_recipe
from unspool.training.recipe_checks import check_resumption

PLAIN = {
    "data": {"kind": "lines", "train": "x.txt"},
    "tokenizer": {"kind": "characters"},
    "model": {"kind": "rnn_lm", "width": 8},
    "train": {"updates": 10},
}


def found(before, now):
    one, two = parse_recipe(before), parse_recipe(now)
    names = find_changes(
        flatten_settings(one, one.model_config(30)), flatten_settings(two, two.model_config(30)), two.data
    )
    return {str(it): it.allowed for it in names}


def changed(**sections):
    return {name: {**PLAIN.get(name, {}), **it} for name, it in sections.items()}


def test_flattened_settings_include_defaults():
    said = flatten_settings(parse_recipe(PLAIN), parse_recipe(PLAIN).model_config(30))
    assert said["seed"] == 0
    assert said["train.lr"] == 1e-3
    assert said["train.patience"] is None
    assert said["model.kind"], said["model.vocab_size"] == ("rnn_lm", 30)
    assert said["model.head.kind"] is None
    assert said["batches.kind"] == "bucketed"
    assert said["hooks.kinds"] == []


def test_spelling_out_a_default_is_not_a_change():
    assert (
        found(PLAIN, {**PLAIN, "seed": 0, **changed(train={"lr": 1e-3}, schedule={"kind": "inverse_sqrt"})})
        == {}
    )


@pytest.mark.parametrize(
    ("now", "said", "allowed"),
    [
        (changed(train={"lr": 0.5}), "train.lr was 0.001, is 0.5", True),
        (changed(train={"patience": 3}), "train.patience was not given, is 3", True),
        (changed(train={"accumulate": 2}), "train.accumulate was 1, is 2", False),
        (changed(schedule={"kind": "cosine"}), "schedule.kind was 'inverse_sqrt', is 'cosine'", True),
        (changed(objective={"smoothing": 0.1}), "objective.smoothing was 0.0, is 0.1", True),
        (changed(model={"dropout": 0.1}), "model.dropout was 0.0, is 0.1", True),
        (changed(model={"width": 16}), "model.width was 8, is 16", False),
        (changed(model={"head": {"kind": "mixture"}}), "model.head.kind was not given, is 'mixture'", False),
        (changed(tokenizer={"kind": "words"}), "tokenizer.kind was 'characters', is 'words'", False),
        (changed(batches={"tokens": 128}), "batches.tokens was 4096, is 128", False),
        (changed(data={"valid_lines": 3}), "data.valid_lines was 0, is 3", False),
        ({"seed": 2}, "seed was 0, is 2", False),
    ],
)
def test_which_settings_may_change(now, said, allowed):
    assert found(PLAIN, {**PLAIN, **now}) == {said: allowed}


def test_settings_of_hooks_may_change_but_not_their_kinds():
    head = {"head": {"kind": "kerbs", "senses": 2.0}}
    one = {**PLAIN, **changed(model=head), "hooks": [{"kind": "kerbs_reallocate"}]}
    assert found(one, {**one, "hooks": [{"kind": "kerbs_reallocate", "every": 7}]}) == {
        "hooks.0.every was 100, is 7": True
    }
    assert found(one, {**one, "hooks": []})["hooks.kinds was ['kerbs_reallocate'], is []"] is False


def test_a_setting_added_after_the_run_began_is_not_a_change():
    now = flatten_settings(parse_recipe(PLAIN), parse_recipe(PLAIN).model_config(30))
    before = {name: it for name, it in now.items() if name != "train.clip"}
    assert find_changes(before, now, parse_recipe(PLAIN).data) == []


def test_all_refused_changes_are_named_at_once(tmp_path):
    changes = [Change("seed", 1, 2), Change("train.lr", 1.0, 2.0), Change("model.width", 8, 16)]
    with pytest.raises(ValueError, match=r"seed was 1, is 2; model\.width was 8, is 16; undo the change"):
        check_resumption(tmp_path, changes, None, {}, {})
    check_resumption(tmp_path, changes[1:2], None, {}, {})


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"train": "a"}, {"train": "b"}, "data.train = 't.txt' has other content"),
        ({"train": "a"}, {"train": "a", "valid": "b"}, "data.valid = 'v.txt' is new"),
        ({"train": "a", "valid": "b"}, {"train": "a"}, "data.valid = 'v.txt' is missing"),
    ],
)
def test_content_of_files_must_not_change(tmp_path, before, now, said):
    data = Lines(train="t.txt", valid="v.txt")
    check_resumption(tmp_path, [], data, before, before)
    with pytest.raises(ValueError, match=said):
        check_resumption(tmp_path, [], data, before, now)


def test_a_change_of_kind_is_named_once():
    now = replace(parse_recipe(PLAIN), data=TaggedLines(train="x.txt"))
    before = parse_recipe(PLAIN)
    shape = before.model_config(30)
    names = find_changes(flatten_settings(before, shape), flatten_settings(now, shape), now.data)
    assert [str(it) for it in names] == ["data.kind was 'lines', is 'tagged'"]
