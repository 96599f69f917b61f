import io
import json
import math
import re
import time

import pytest
from rich.progress import Progress

from unspool.interfaces import Clock
from unspool.training.loop import training_loop
from unspool.training.reporters import (
    BarReporter,
    LineReporter,
    NoReports,
    Reporter,
    Speed,
    describe_update,
    join_fitting,
    perplexity,
    update_line,
)
from unspool.training.update import Update
from unspool.training.validation import Validation


def test_json_lines(tiny):
    file = io.StringIO()
    run = tiny(updates=5, log_every=2)
    LineReporter(file, as_json=True).follow(training_loop(run), run)
    records = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [it["update"] for it in records] == [2, 4, 5]
    assert records[1]["valid"] > 0
    assert records[0]["valid"] is None
    assert all(it["targets_per_second"] > 0 for it in records)


def test_lines_for_people(tiny):
    file = io.StringIO()
    run = tiny(updates=2)
    LineReporter(file).follow(training_loop(run), run)
    first, second = file.getvalue().splitlines()
    assert first.startswith("update 1/2  loss ")
    assert "validation" in second
    assert second.endswith("0:00:00 left")


def test_the_bar_shows_validations(tiny, capsys):
    run = tiny(updates=4)
    BarReporter().follow(training_loop(run), run)
    err = capsys.readouterr().err
    assert "update 4: validation" in err
    assert "tokens/s" in err


def test_the_bar_of_a_resumed_run_starts_at_its_update(tiny, monkeypatch):
    started, original = [], Progress.add_task

    def add_task(bar, *args, **options):
        started.append((options["completed"], options["total"]))
        return original(bar, *args, **options)

    monkeypatch.setattr(Progress, "add_task", add_task)
    run = tiny(updates=4)
    run.progress.update = 2
    BarReporter().follow(iter(()), run)
    assert started == [(2, 4)]


def test_quiet_warns_and_silent_does_not(tiny, capsys):
    with pytest.warns(UserWarning, match="rows were dropped"):
        Reporter().warn("rows were dropped")
    Reporter().note("going on")
    NoReports().warn("rows were dropped")
    run = tiny(updates=2)
    Reporter().follow(training_loop(run), run)
    assert run.progress.update == 2
    LineReporter().warn("rows were dropped")
    assert capsys.readouterr().err == "unspool: rows were dropped\n"


def test_pace(tiny, monkeypatch):
    now = iter([0.0, 2.0, 4.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    pace = Speed(tiny(updates=10))
    done = Update(Clock(1, 10), 1.0, math.log(2), 100.0, 1.0, 0.1, seconds=0.5)  # and 1.5 s of validation
    pace.count(done)
    assert pace.speed == pytest.approx(200.0)
    assert pace.left == pytest.approx(18.0)
    assert update_line(done, pace) == "loss 1.000  perplexity 2.00  200 tokens/s  0:00:18 left"
    assert describe_update(done, pace)[:2] == ["1/10", "0:00:18 left"]
    pace.count(done)
    assert pace.left == pytest.approx(16.0)


def test_an_update_knows_its_own_time(tiny, monkeypatch):
    def slow(run):
        time.sleep(0.3)
        return Validation(1.0, None)

    monkeypatch.setattr("unspool.training.loop.validate", slow)
    run = tiny(updates=4, validate_every=1)
    done = list(training_loop(run))
    assert all(it.seconds > 0.0 for it in done)
    assert min(it.seconds for it in done) < 0.15


def test_what_matters_most_is_shown_first():
    words = ["12/34", "0:01:02 left", "loss 1.0"]
    assert join_fitting(words, 100) == "12/34  0:01:02 left  loss 1.0"
    assert join_fitting(words, 28) == "12/34  0:01:02 left"
    assert join_fitting(words, 19) == "12/34  0:01:02 left"
    assert join_fitting(words, 18) == join_fitting(words, 1) == "12/34"


@pytest.mark.parametrize("columns", [120, 80, 48, 30])
def test_a_narrow_bar_keeps_count_and_time(tiny, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    run = tiny(updates=4, valid=False)
    BarReporter().follow(training_loop(run), run)
    last = capsys.readouterr().err.splitlines()[-1]
    assert len(last) <= columns
    assert "4/4  0:00:00 left" in last
    assert ("tokens/s" in last) == (columns >= 80)


def test_perplexity_never_overflows():
    assert perplexity(1000.0) == "∞"
    assert perplexity(0.0) == "1.00"


def labelled(tiny, **settings):
    run = tiny(**settings)
    run.model.labels = tuple("abcdefghijk")  # as if its tokens were labels
    return run


def test_labels_are_told_by_accuracy(tiny, capsys):
    file, run = io.StringIO(), labelled(tiny, updates=4)
    LineReporter(file).follow(training_loop(run), run)
    first, *_, last = file.getvalue().splitlines()
    assert re.search(r"loss \S+  accuracy \d+\.\d%  ", first)
    assert re.search(r"validation \d\.\d+  validation accuracy \d+\.\d%  ", last)
    assert "perplexity" not in file.getvalue()
    run = labelled(tiny, updates=4)
    BarReporter().follow(training_loop(run), run)
    assert re.search(r"update 4: validation \d\.\d+, accuracy \d+\.\d%", capsys.readouterr().err)


def test_an_objective_without_likelihood_is_told_by_what_it_says(tiny):
    told = {"greedy_reward": 0.25, "reward": 1.5}
    done = Update(Clock(1, 10), 1.0, math.nan, 100.0, 1.0, 0.1, seconds=0.5, parts=told)
    file, run = io.StringIO(), tiny(updates=10, log_every=1)
    assert "loss 1.000  greedy reward 0.250  reward 1.500  " in update_line(done, Speed(run))
    LineReporter(file, as_json=True).follow(iter([done]), run)
    assert json.loads(file.getvalue(), parse_constant=pytest.fail)["nll"] is None  # NaN is no JSON


def test_accuracy_is_in_json_where_there_are_labels(tiny):
    for run, there in ((tiny(updates=4), False), (labelled(tiny, updates=4), True)):
        file = io.StringIO()
        LineReporter(file, as_json=True).follow(training_loop(run), run)
        *_, last = map(json.loads, file.getvalue().splitlines())
        assert ("accuracy" in last) == ("valid_accuracy" in last) == there
        if there:
            assert 0 <= last["accuracy"] <= 1
            assert 0 <= last["valid_accuracy"] <= 1
