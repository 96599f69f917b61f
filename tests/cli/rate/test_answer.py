import os
import random
import signal
import subprocess
import sys
import time

import pytest

from unspool.evaluate.rating import RatingSet, prepare


def test_a_session_is_answered_and_gone_on_with(unspool, ratings, piped):
    piped(b"2\n\n1\nq\n")
    status, out, err = unspool("rate", "answer", ratings, "--rater", "anna")
    assert (status, err) == (0, "")
    assert out.startswith("Fluent: it reads")
    assert "── 3 of 12" in out
    assert [it.choice for it in RatingSet.load(ratings).answers()] == ["2", "1"]
    piped(b"0\n" * 10)
    out = unspool("rate", "answer", ratings, "--rater", "anna")[1]
    assert "── 3 of 12" in out
    assert "all 12 items are answered" in out
    piped(b"")
    assert unspool("rate", "answer", ratings, "--rater", "anna")[1] == "anna has answered all 12 items\n"


def test_taking_back_and_leaving_for_later(unspool, ratings, piped):
    order = [it.id for it in RatingSet.load(ratings).order("anna")]
    piped(b"2\nu\n0\ns\n1\n?\n")
    out = unspool("rate", "answer", ratings, "--rater", "anna")[1]
    found = {it.item: it.choice for it in RatingSet.load(ratings).answers()}
    assert found == {order[0]: "0", order[2]: "1"}
    assert out.count("Judge the two apart") == 2


def test_no_system_is_named_and_nothing_steers_the_screen(unspool, tmp_path, piped):
    (tmp_path / "secret.txt").write_text("\x1b[2Jhello\n")
    (tmp_path / "p.txt").write_text("question\n")
    unspool(
        "rate", "prepare", tmp_path / "secret.txt", "--prompts", tmp_path / "p.txt", "--out", tmp_path / "s"
    )
    piped(b"q\n")
    out = unspool("rate", "answer", tmp_path / "s", "--rater", "anna")[1]
    assert "hello" in out
    assert "secret" not in out
    assert "\x1b" not in out


def test_a_script_that_says_nonsense_is_stopped(unspool, ratings, piped):
    piped(b"1\n7\n1\n")
    status, _, err = unspool("rate", "answer", ratings, "--rater", "anna")
    assert (status, err) == (2, "unspool: '7' is none of 0, 1, 2, u, s, ?, q\n")
    assert len(RatingSet.load(ratings).answers()) == 1


def test_a_person_is_asked_again(ratings, monkeypatch, unspool):
    import io

    class Keyboard(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Keyboard("7\n2\nq\n"))
    status, out, _ = unspool("rate", "answer", ratings, "--rater", "anna")
    assert status == 0
    assert "'7' is none of" in out
    assert len(RatingSet.load(ratings).answers()) == 1


def test_sessions_killed_at_random_instants_lose_at_most_the_answer_being_typed(tmp_path):
    """Two raters in two processes; what a session had asked beyond was on the disk when it was killed."""
    prompts = [f"question {n}" for n in range(600)]
    ratings = prepare(tmp_path / "set", {"x": [f"text {n}" for n in range(600)]}, prompts)
    command = [sys.executable, "-m", "unspool.cli", "rate", "answer", str(tmp_path / "set"), "--rater"]
    dice, done = random.Random(1), {"anna": 0, "bert": 0}
    for _ in range(5):
        sessions = {
            name: subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            for name in done
        }
        begun = {name: until_asked(session) for name, session in sessions.items()}
        for session in sessions.values():
            session.stdin.write(b"1\n2\n" * 50)
            session.stdin.flush()
        time.sleep(dice.uniform(0, 0.03))
        for session in sessions.values():
            os.kill(session.pid, signal.SIGKILL)
        for name, session in sessions.items():
            shown = (begun[name] + session.communicate()[0]).decode(errors="replace").count("── ")
            kept = sum(it.rater == name for it in ratings.answers())
            # Item k + 1 was shown only after the answer to item k was kept.
            assert done[name] + shown - 1 <= kept <= done[name] + shown
            done[name] = kept
    assert 0 < sum(done.values()) < 1000  # some answers were kept, and no session came to its end


def until_asked(session):
    """What a session has shown by the time it asks for the first answer."""
    found = b""
    while not found.endswith(b"> "):
        found += session.stdout.read(1)
    return found


@pytest.mark.parametrize("name", ["", "a\nb", "-x"])
def test_a_rater_without_a_name_is_refused(unspool, ratings, name):
    status, _, err = unspool("rate", "answer", ratings, f"--rater={name}")
    assert status == 2
    assert "rater" in err
