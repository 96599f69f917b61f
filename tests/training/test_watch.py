import io
import json
import math

import pytest

from unspool.protocols import Clock
from unspool.training.loop import training
from unspool.training.update import Update
from unspool.training.watch import Bar, Lines, Pace, Quiet, Silent, perplexity, said


def test_json_lines(tiny):
    file = io.StringIO()
    run = tiny(updates=5, log_every=2)
    Lines(file, as_json=True).follow(training(run), run)
    records = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [it["update"] for it in records] == [2, 4, 5]
    assert records[1]["valid"] > 0
    assert records[0]["valid"] is None
    assert all(it["targets_per_second"] > 0 for it in records)


def test_lines_for_people(tiny):
    file = io.StringIO()
    run = tiny(updates=2)
    Lines(file).follow(training(run), run)
    first, second = file.getvalue().splitlines()
    assert first.startswith("update 1/2  loss ")
    assert "validation" in second
    assert second.endswith("0:00:00 left")


def test_the_bar_shows_validations(tiny, capsys):
    run = tiny(updates=4)
    Bar().follow(training(run), run)
    err = capsys.readouterr().err
    assert "update 4: validation" in err
    assert "tokens/s" in err


def test_quiet_warns_and_silent_does_not(tiny, capsys):
    with pytest.warns(UserWarning, match="rows were dropped"):
        Quiet().warn("rows were dropped")
    Quiet().note("going on")
    Silent().warn("rows were dropped")
    run = tiny(updates=2)
    Quiet().follow(training(run), run)
    assert run.progress.update == 2
    Lines().warn("rows were dropped")
    assert capsys.readouterr().err == "unspool: rows were dropped\n"


def test_pace(tiny, monkeypatch):
    now = iter([0.0, 2.0, 4.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    pace = Pace(tiny(updates=10))
    done = Update(Clock(1, 10), 1.0, math.log(2), 100.0, 1.0, 0.1)
    pace.count(done)
    assert pace.speed == pytest.approx(50.0)
    assert pace.left == pytest.approx(18.0)
    assert said(done, pace) == "loss 1.000  perplexity 2.00  50 tokens/s  0:00:18 left"
    pace.count(done)
    assert pace.left == pytest.approx(16.0)


def test_perplexity_never_overflows():
    assert perplexity(1000.0) == "∞"
    assert perplexity(0.0) == "1.00"
