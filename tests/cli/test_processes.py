import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from io import StringIO

import pytest

from unspool.cli import processes
from unspool.cli.processes import LineBuffer, available_cores, run_in_parallel, run_processes

TELL = """
import json, os, pathlib, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps([os.environ[name] for name in names]))
"""
RANK = "import os, signal, sys, time; rank = int(os.environ['RANK']); "


def python(script, *argv):
    return [sys.executable, "-c", script, *map(str, argv)]


def test_each_process_is_told_its_number(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert run_processes(3, python(TELL, tmp_path)) == 0
    told = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    assert [it[:3] for it in told] == [[str(rank), str(rank), "3"] for rank in range(3)]
    assert len({tuple(it[3:]) for it in told}) == 1
    assert told[0][3] == "127.0.0.1"
    assert told[0][5] == "2"


def test_the_first_one_speaks_for_those_that_end_as_it_does(capfd):
    script = RANK + "print('no data', file=sys.stderr); sys.exit(2)"
    assert run_processes(3, python(script)) == 2
    assert capfd.readouterr().err == "no data\n"


def test_one_that_ends_in_another_way_is_heard_and_ends_all(capfd, monkeypatch):
    monkeypatch.setattr(processes, "EXIT_TIMEOUT", 0.5)
    script = RANK + "rank == 1 and (print('out of memory', file=sys.stderr), sys.exit(5)); time.sleep(60)"
    began = time.monotonic()
    assert run_processes(3, python(script)) == 5
    assert time.monotonic() - began < 30
    assert capfd.readouterr().err == "process 1: out of memory\n"


def test_a_process_that_was_killed_counts_as_shells_count():
    assert run_processes(2, python(RANK + "rank == 1 and os.kill(os.getpid(), signal.SIGKILL)")) == 128 + 9


WAIT = (
    RANK
    + """
def end(number, frame):
    os.write(1, f"ended {rank}\\n".encode())  # in one piece
    sys.exit(128 + number)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
os.write(1, b"ready\\n")
time.sleep(60)
"""
)
PARENT = (
    "import sys; from unspool.cli.processes import run_processes; sys.exit(run_processes(2, sys.argv[1:]))"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once_to_each(number):
    parent = subprocess.Popen(
        python(PARENT, *python(WAIT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert [parent.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    os.killpg(parent.pid, number)  # as a terminal does
    out, err = parent.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["ended 0", "ended 1"]
    assert (parent.returncode, err) == (128 + number, "")


def code(text):
    """A function that another process can be given."""
    return partial(exec, text, {})


def test_a_core_is_there():
    assert 1 <= available_cores() <= os.cpu_count()


def test_lines_are_passed_on_whole():
    stream = StringIO()
    lines = LineBuffer(stream)
    lines.write("one\ntw")
    assert stream.getvalue() == "one\n"
    lines.write("o\n")
    assert stream.getvalue() == "one\ntwo\n"


def test_what_is_to_be_seen_at_once_is_said_again_when_its_line_ends():
    stream = StringIO()
    lines = LineBuffer(stream)
    print("compiling …", end="", file=lines, flush=True)
    lines.flush()
    assert stream.getvalue() == "compiling …\n"
    print(" done", file=lines, flush=True)
    assert stream.getvalue() == "compiling …\ncompiling … done\n"


def test_each_is_called_once_in_processes_of_their_own(tmp_path):
    write = "import os, pathlib; pathlib.Path({!r}).write_text(str(os.getpid()))"
    paths = [tmp_path / str(number) for number in range(5)]
    run_in_parallel([code(write.format(str(path))) for path in paths], 2)
    found = {int(path.read_text()) for path in paths}
    assert 1 <= len(found) <= 2
    assert os.getpid() not in found


def test_two_of_them_run_at_a_time(tmp_path):
    meet = """
import pathlib, time
here, there = pathlib.Path({!r}), pathlib.Path({!r})
here.touch()
end = time.monotonic() + 60
while not there.exists():
    assert time.monotonic() < end
    time.sleep(0.01)
"""
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    run_in_parallel([code(meet.format(one, other)), code(meet.format(other, one))], 2)


def test_lines_of_several_do_not_mix(capfd):
    say = """
import sys, time
for _ in range(20):
    print({0!r}, end="", file=sys.stderr)
    time.sleep(0.001)
    print({0!r}, file=sys.stderr)
"""
    run_in_parallel([code(say.format("a" * 50)), code(say.format("b" * 50))], 2)
    assert sorted(capfd.readouterr().err.splitlines()) == ["a" * 100] * 20 + ["b" * 100] * 20


FOREVER = "import os, pathlib, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(600)"


def test_an_error_of_one_ends_all(tmp_path):
    begun = str(tmp_path / "begun")
    fail = """
import pathlib, time
while not pathlib.Path({!r}).exists():
    time.sleep(0.01)
raise ValueError("no")
"""
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"^no$"):
        run_in_parallel([code(FOREVER.format(begun)), code(fail.format(begun))], 2)
    assert time.monotonic() - start < 300


def test_one_that_is_killed_is_no_success(tmp_path):
    with pytest.raises(BrokenProcessPool):
        run_in_parallel([code("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")], 2)


ASK = """
from functools import partial
from unspool.cli import main
from unspool.cli import compile as verb
if __name__ == "__main__":
    verb.available_cores = lambda: 2
    verb.TASKS = [partial(exec, text, {{}}) for text in {parts!r}]
    raise SystemExit(main(["compile"]))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise here")
@pytest.mark.parametrize(
    ("send", "number", "status", "said"),
    [
        (os.kill, signal.SIGINT, 130, "unspool: interrupted\n"),
        (os.killpg, signal.SIGINT, 130, "unspool: interrupted\n"),
        (os.kill, signal.SIGKILL, -signal.SIGKILL, None),  # Python may complain in its own words
    ],
    ids=["an interrupt", "an interrupt of everybody", "a kill"],
)
def test_the_end_of_the_first_is_the_end_of_all(tmp_path, send, number, status, said):
    begun = [tmp_path / "one", tmp_path / "other"]
    script = tmp_path / "script.py"
    script.write_text(ASK.format(parts=[FOREVER.format(str(path)) for path in begun]))
    asked = subprocess.Popen(
        [sys.executable, script], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not all(path.exists() and path.read_text() for path in begun):
        assert asked.poll() is None
        time.sleep(0.05)
    send(asked.pid, number)
    found = asked.communicate(timeout=120)[1]  # which is at its end when nobody is left to write there
    assert said in (found, None)
    assert asked.returncode == status


def test_an_error_is_shown_and_gives_a_status(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ASK.format(parts=["1 / 0", "pass"]))
    asked = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert asked.returncode == 1
    assert asked.stderr == "unspool: ZeroDivisionError: division by zero (--debug shows the traceback)\n"
