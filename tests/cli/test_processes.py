import json
import os
import signal
import subprocess
import sys
import time

import pytest

from unspool.cli import processes
from unspool.cli.processes import run_processes

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


COMPILE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
from unspool.cli import compile as command, main
command.available_cores = lambda: 2
command.run_processes = lambda count, _: run_processes(count, [sys.executable, __file__])
from unspool.cli.processes import run_processes
command.TASKS = [lambda text=text: exec(text, {{}}) for text in {tasks!r}]
raise SystemExit(main(["compile"]))
"""


def compile_tasks(tmp_path, *tasks):
    script = tmp_path / "script.py"
    script.write_text(COMPILE.format(tasks=tasks))
    return [sys.executable, script]


def test_compile_runs_each_task_once_in_its_own_process(tmp_path):
    write = "import os, pathlib; pathlib.Path({!r}).write_text(str(os.getpid()))"
    paths = [tmp_path / str(number) for number in range(3)]
    command = compile_tasks(tmp_path, *(write.format(str(path)) for path in paths))
    subprocess.run(command, check=True, timeout=120)
    first, second, third = (path.read_text() for path in paths)
    assert first == third != second


FOREVER = "import os, pathlib, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(600)"


@pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise here")
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_an_interrupt_ends_all_processes_of_compile(tmp_path, send):
    begun = [tmp_path / "one", tmp_path / "other"]
    command = compile_tasks(tmp_path, *(FOREVER.format(str(path)) for path in begun))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not all(path.exists() and path.read_text() for path in begun):
        assert process.poll() is None
        time.sleep(0.05)
    send(process.pid, signal.SIGINT)
    err = process.communicate(timeout=120)[1]  # ends when no process is left to write there
    assert (process.returncode, err) == (130, "unspool: interrupted\n")


def test_an_error_of_compile_is_shown_and_gives_a_status(tmp_path):
    done = subprocess.run(
        compile_tasks(tmp_path, "1 / 0", "pass"), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr == "unspool: ZeroDivisionError: division by zero (--debug shows the traceback)\n"
