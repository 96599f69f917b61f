import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from unspool.evaluate.rating import RatingSet, prepare


@pytest.fixture
def systems(tmp_path):
    """Two systems' outputs to six prompts."""
    found = []
    for name in ("ours", "theirs"):
        path = tmp_path / f"{name}.jsonl"
        records = [{"prompt": f"question {n}?", "text": f"{name} says {n}"} for n in range(6)]
        path.write_text("".join(json.dumps(it) + "\n" for it in records))
        found.append(path)
    return found


@pytest.fixture
def ratings(unspool, systems, tmp_path):
    """A set of their texts, prepared by the command."""
    assert unspool("rate", "prepare", *systems, "--output", tmp_path / "set", "--seed", 1)[0] == 0
    return tmp_path / "set"


def test_a_set_of_two_systems(unspool, systems, tmp_path):
    status, out, err = unspool("rate", "prepare", *systems, "--output", tmp_path / "set")
    assert (status, err) == (0, "")
    assert out == (
        f"12 items of 6 prompts and 2 systems in {tmp_path / 'set'}; "
        f"next: unspool rate answer {tmp_path / 'set'} --rater YOU\n"
    )
    assert len(RatingSet.load(tmp_path / "set").items) == 12


def test_pairs_of_some_prompts(unspool, systems, tmp_path):
    argv = (
        "rate",
        "prepare",
        *systems,
        "--output",
        tmp_path / "set",
        "--scale",
        "preference",
        "--max-prompts",
        4,
    )
    assert unspool(*argv)[1].startswith("4 items of 4 prompts")
    status, _, err = unspool(*argv)
    assert status == 2
    assert "already contains a rating set" in err


def test_plain_lines_with_prompts_beside_them(unspool, tmp_path):
    for name in ("a", "b", "p"):
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    files = (f"x={tmp_path}/a.txt", f"y={tmp_path}/b.txt")
    assert (
        unspool("rate", "prepare", *files, "--prompts", tmp_path / "p.txt", "--output", tmp_path / "s")[0]
        == 0
    )
    assert RatingSet.load(tmp_path / "s").key().systems == ("x", "y")
    status, _, err = unspool("rate", "prepare", *files, "--output", tmp_path / "t")
    assert status == 2
    assert "give --prompts" in err


def test_a_missing_file_is_named(unspool, tmp_path):
    status, _, err = unspool("rate", "prepare", tmp_path / "no.jsonl", "--output", tmp_path / "s")
    assert status == 2
    assert "no.jsonl: No such file" in err


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
    assert out.count("Rate the two separately") == 2


def test_no_system_is_named_and_nothing_steers_the_screen(unspool, tmp_path, piped):
    (tmp_path / "secret.txt").write_text("\x1b[2Jhello\n")
    (tmp_path / "p.txt").write_text("question\n")
    unspool(
        "rate",
        "prepare",
        tmp_path / "secret.txt",
        "--prompts",
        tmp_path / "p.txt",
        "--output",
        tmp_path / "s",
    )
    piped(b"q\n")
    out = unspool("rate", "answer", tmp_path / "s", "--rater", "anna")[1]
    assert "hello" in out
    assert "secret" not in out
    assert "\x1b" not in out


def test_a_script_that_says_nonsense_is_stopped(unspool, ratings, piped):
    piped(b"1\n7\n1\n")
    status, _, err = unspool("rate", "answer", ratings, "--rater", "anna")
    assert (status, err) == (2, "unspool: '7' is not one of 0, 1, 2, u, s, ?, q\n")
    assert len(RatingSet.load(ratings).answers()) == 1


def test_a_person_is_asked_again(ratings, monkeypatch, unspool):
    import io

    class Keyboard(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Keyboard("7\n2\nq\n"))
    status, out, _ = unspool("rate", "answer", ratings, "--rater", "anna")
    assert status == 0
    assert "'7' is not one of" in out
    assert len(RatingSet.load(ratings).answers()) == 1


def test_sessions_killed_at_random_instants_lose_at_most_the_answer_being_typed(tmp_path):
    """Two raters in two processes; what a session had asked beyond was on the disk when it was killed."""
    prompts = [f"question {n}" for n in range(600)]
    ratings = prepare(tmp_path / "set", {"x": [f"text {n}" for n in range(600)]}, prompts)
    command = [sys.executable, "-m", "unspool", "rate", "answer", str(tmp_path / "set"), "--rater"]
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


@pytest.fixture
def answered(ratings):
    found = RatingSet.load(ratings)
    for item in found.items:
        good = item.texts[0].startswith("ours")
        found.record("anna", item.id, "2" if good else "0")
        found.record("bert", item.id, "2" if good else "1")
    return ratings


def test_the_report_lists_every_measure(unspool, answered):
    status, out, err = unspool("rate", "report", answered)
    assert (status, err) == (0, "")
    assert out.startswith("24 answers to 12 items by anna (12), bert (12)\n")
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("ours ", "theirs "))]
    assert rows[0][:6] == ["ours", "12", "0", "0", "12", "2.000"]
    assert rows[1][:6] == ["theirs", "12", "6", "6", "0", "0.500"]
    assert "Krippendorff's α: nominal 0." in out
    assert "ours − theirs: +1.500, p = 0.0" in out


def test_json_and_a_figure(unspool, answered, tmp_path):
    status, out, err = unspool(
        "rate", "report", answered, "--json", "--figure", tmp_path / "f.svg", "--samples", 50
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'f.svg'}\n")
    found = json.loads(out)
    assert [it["system"] for it in found["systems"]] == ["ours", "theirs"]
    assert found["pairs"][0]["difference"] == 1.5
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")


def test_without_answers_or_without_a_set(unspool, ratings, tmp_path):
    status, _, err = unspool("rate", "report", ratings, "--figure", tmp_path / "f.svg")
    assert status == 2
    assert "has no answers yet" in err
    assert not (tmp_path / "f.svg").exists()
    status, _, err = unspool("rate", "report", tmp_path / "nowhere")
    assert status == 2
    assert "does not contain set.json" in err


def test_preferences(unspool, systems, tmp_path):
    unspool("rate", "prepare", *systems, "--output", tmp_path / "set", "--scale", "preference")
    found = RatingSet.load(tmp_path / "set")
    for item in found.items:
        found.record("anna", item.id, "a" if item.texts[0].startswith("ours") else "b")
    out = unspool("rate", "report", tmp_path / "set", "--samples", 50)[1]
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("ours ", "theirs "))]
    assert rows[0][:5] == ["ours", "6", "6", "0", "0"]
    assert rows[1][:5] == ["theirs", "6", "0", "0", "6"]
    assert "agreement is unknown" in out


def test_a_sheet_is_written_and_a_wrong_place_refused(unspool, ratings, tmp_path):
    status, out, _ = unspool("rate", "export", ratings, tmp_path / "anna.csv", "--rater", "anna")
    assert (status, out) == (0, f"12 rows in {tmp_path / 'anna.csv'}\n")
    content = (tmp_path / "anna.csv").read_text(encoding="utf-8-sig")
    assert content.startswith("rater,item,choice,prompt,text\n")
    assert "theirs says" in content
    status, _, err = unspool("rate", "export", ratings, tmp_path / "no" / "x.csv")
    assert status == 2
    assert "there is no folder" in err


def test_systems_are_named_only_when_asked_for(unspool, ratings, tmp_path):
    unspool("rate", "export", ratings, tmp_path / "a.csv", "--rater", "anna", "--systems")
    assert (
        (tmp_path / "a.csv")
        .read_text(encoding="utf-8-sig")
        .startswith("rater,item,choice,prompt,text,system")
    )


def test_a_filled_sheet_is_recorded(unspool, ratings, tmp_path):
    first, second, *_ = RatingSet.load(ratings).items
    (tmp_path / "a.csv").write_text(f"item;choice\n{first.id};2\n{second.id};\n")
    assert unspool("rate", "import", ratings, tmp_path / "a.csv", "--rater", "anna")[:2] == (
        0,
        "1 new answers\n",
    )
    assert unspool("rate", "import", ratings, tmp_path / "a.csv", "--rater", "anna")[:2] == (
        0,
        "0 new answers\n",
    )
    (tmp_path / "a.csv").write_text(f"rater,item,choice\nbert,{first.id},5\n")
    status, _, err = unspool("rate", "import", ratings, tmp_path / "a.csv")
    assert status == 2
    assert "row 2: '5' is not an answer" in err
    assert len(RatingSet.load(ratings).answers()) == 1


def test_nothing_heavy_is_imported_to_rate(ratings):
    import subprocess
    import sys

    code = (
        "import sys\nfrom unspool.cli import main\n"
        f"assert main(['rate', 'answer', {str(ratings)!r}, '--rater', 'anna']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
