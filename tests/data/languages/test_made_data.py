from __future__ import annotations

import math

import pytest

from unspool.config import build, to_dict
from unspool.data import Bucketed, Data, OwnTokenizer, prepare
from unspool.data.known_languages import LANGUAGES, made_data
from unspool.data.known_languages.made_data import LanguageData, TaskData, is_for_validation
from unspool.data.known_languages.tasks import TASKS
from unspool.data.rows import no_progress
from unspool.tokenization import Characters


@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_language_gives_lines_that_it_can_speak(kind):
    data: Data = LanguageData(train=20, valid=5, language={"kind": kind})
    train, valid = list(data.train_rows(no_progress)), list(data.valid_rows(no_progress))
    assert (len(train), len(valid)) == (20, 5)
    assert train == list(data.train_rows(no_progress))
    assert train[:5] != valid
    codec = data.new_tokenizer()
    for (line,) in train + valid:
        assert math.isfinite(data.known.log_prob(codec.encode(line)))
    assert isinstance(data, OwnTokenizer)


@pytest.mark.parametrize(("most", "drawn"), [(30, 30), (29, 60)])
def test_only_rows_of_small_data_are_kept(most, drawn, monkeypatch):
    rows = []

    class Counted(LanguageData):
        def sample_row(self, rng, part):
            rows.append(super().sample_row(rng, part))
            return rows[-1]

    monkeypatch.setattr(made_data, "MAX_KEPT_ROWS", most)
    data = Counted(train=30, valid=5)
    first, second = (list(data.train_rows(no_progress)) for _ in range(2))
    assert first == second == rows[:30]
    assert len(rows) == drawn


def test_noise_makes_sentences_that_the_language_alone_cannot_speak():
    data = LanguageData(train=200, valid=0, language={"kind": "agreement"}, noise=0.1)
    encode, plain = data.new_tokenizer().encode, data.known.language
    rows = [encode(line) for (line,) in data.train_rows(no_progress)]
    assert all(math.isfinite(data.known.log_prob(row)) for row in rows)
    assert not all(math.isfinite(plain.log_prob(row)) for row in rows)
    assert data.language["kind"] == "agreement"
    with pytest.raises(ValueError, match="noise is 1"):
        LanguageData(noise=1.0)


@pytest.mark.parametrize("kind", TASKS)
def test_a_task_gives_pairs_of_distinct_sources(kind):
    data: Data = TaskData(train=50, valid=20, task={"kind": kind})
    train, valid = list(data.train_rows(no_progress)), list(data.valid_rows(no_progress))
    assert (len(train), len(valid)) == (50, 20)
    assert train == list(data.train_rows(no_progress))
    assert not {source for source, _ in train} & {source for source, _ in valid}
    assert not isinstance(data, OwnTokenizer)


def test_a_tenth_of_the_sources_is_for_validation():
    share = sum(is_for_validation(f"{a}+{b}") for a in range(100) for b in range(100)) / 10_000
    assert abs(share - 26 / 256) < 0.01


def test_no_validation_leaves_everything_to_learn_from():
    data = TaskData(train=400, valid=0, task={"kind": "addition", "digits": 1})
    assert data.valid_rows(no_progress) is None
    assert any(is_for_validation(source) for source, _ in data.train_rows(no_progress))
    assert LanguageData(valid=0).valid_rows(no_progress) is None


def test_more_rows_begin_with_the_fewer():
    few, many = (list(TaskData(train=n).train_rows(no_progress)) for n in (10, 30))
    assert many[:10] == few


def test_a_seed_changes_the_draws_and_not_the_language():
    one, two = LanguageData(train=9, seed=1), LanguageData(train=9, seed=2)
    assert one.known == two.known
    assert list(one.train_rows(no_progress)) != list(two.train_rows(no_progress))


def test_settings_are_written_out_and_come_back():
    data = build(LanguageData, {"train": 9, "language": {"kind": "agreement", "depth": 3}}, "data")
    assert data.language["depth"] == 3
    assert data.language["nouns"] == 20
    assert build(LanguageData, to_dict(data), "data") == data


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: LanguageData(language={"kind": "zipf"}), "zipf_markov"),
        (lambda: LanguageData(language={"kind": "senses", "topic": 3}), "did you mean 'topics'"),
        (lambda: LanguageData(language={"kind": "senses", "topics": 3}), "most_senses is 4"),
        (lambda: TaskData(task={}), 'lacks "kind": choose from addition'),
        (lambda: TaskData(train=0), "train is 0"),
        (lambda: TaskData(valid=-1), "valid is -1"),
    ],
)
def test_nonsense_is_refused_before_anything_is_made(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_a_task_with_too_few_sources_says_so():
    data = TaskData(train=5, valid=5, task={"kind": "copy", "symbols": 1, "longest": 1})
    assert is_for_validation("0") is False
    with pytest.raises(ValueError, match="no source to validate on: the task has too few"):
        list(data.valid_rows(no_progress))


def test_they_are_prepared_like_any_data(tmp_path):
    made = prepare(LanguageData(train=50, valid=10), None, Bucketed(), cache=tmp_path)
    assert made.tokenizer.vocab_size == 1004
    assert made.facts["valid_examples"] == 10
    pairs = prepare(TaskData(train=50, valid=10), Characters(), Bucketed())
    assert pairs.train.batch(0).source_NS is not None
