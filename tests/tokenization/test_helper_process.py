from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from unspool.tokenization import template_sandbox
from unspool.tokenization.helper_process import HelperProcess

SANDBOX = Path(template_sandbox.__file__)
FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def process() -> Iterator[HelperProcess]:
    made = HelperProcess(SANDBOX)
    yield made
    made.close()


def ask(process: HelperProcess, template: str, seconds: float = 20.0, **variables: Any) -> Any:
    return process.request(seconds, template=template, variables=variables, size=1_000_000)


def number(process: HelperProcess) -> int:
    assert process._process is not None
    return process._process.pid


def test_one_process_serves_many_requests(process: HelperProcess) -> None:
    assert ask(process, "{{ x }}", x="é\n\ud800") == {"text": "é\n\ud800"}
    first = number(process)
    assert ask(process, "{{ x.y.z }}", x=[]) == {"error": "'list object' has no attribute 'y'"}
    assert ask(process, "{{ 'a' * 999999 }}") == {"text": "a" * 999_999}
    assert number(process) == first


def test_a_timeout_starts_a_new_process(process: HelperProcess) -> None:
    ask(process, "x")
    first = number(process)
    with pytest.raises(TimeoutError):
        ask(process, FOREVER, seconds=0.05)
    assert not _alive(first)
    assert ask(process, "x") == {"text": "x"}
    assert number(process) != first


def test_a_dead_process_is_replaced(process: HelperProcess) -> None:
    ask(process, "x")
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert ask(process, "x") == {"text": "x"}


def test_a_crash_during_a_request_is_reported(process: HelperProcess) -> None:
    ask(process, "x")
    killer = Timer(0.2, os.kill, (number(process), signal.SIGKILL))
    killer.start()
    reply = ask(process, FOREVER)
    killer.join()
    assert reply == {"error": f"the helper process died (exit status {-signal.SIGKILL})"}
    assert ask(process, "x") == {"text": "x"}


def test_an_interrupted_request_leaves_no_stale_reply(process: HelperProcess) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    ask(process, "x")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            ask(process, FOREVER)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ask(process, "{{ x }}", x="mine") == {"text": "mine"}


def test_ctrl_c_does_not_stop_the_helper_process(process: HelperProcess) -> None:
    ask(process, "x")
    os.kill(number(process), signal.SIGINT)
    first = number(process)
    assert ask(process, "x") == {"text": "x"}
    assert number(process) == first


CODE = """
import os, sys
from unspool.tokenization.chat_template import TEMPLATE_PROCESS, render_chat
hello = [{"role": "user", "content": "Hello"}]
render_chat("x", hello)
print(TEMPLATE_PROCESS._process.pid, flush=True)
"""


def test_helper_process_ends_with_the_program() -> None:
    done = subprocess.run([sys.executable, "-Werror", "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not _alive(int(done.stdout))


def test_helper_process_does_not_outlive_a_killed_program() -> None:
    code = CODE + f"os.kill(os.getpid(), 9) if sys.argv[1] else render_chat({FOREVER!r}, hello, seconds=0.5)"
    for at_once in ("", "x"):
        asking = subprocess.Popen(
            [sys.executable, "-c", code, at_once],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert asking.stdout is not None
        process = int(asking.stdout.readline())
        time.sleep(0.1)
        asking.kill()
        asking.communicate()
        end = time.monotonic() + 20
        while _alive(process) and time.monotonic() < end:
            time.sleep(0.02)
        assert not _alive(process)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_program_starts_its_own_helper_process() -> None:
    code = CODE + (
        "child = os.fork()\n"
        "print(render_chat('{{ messages[0].content }}' + str(child == 0), hello), TEMPLATE_PROCESS._process.pid, flush=True)\n"
        "child and os.waitpid(child, 0)\n"
        "child and print(render_chat('still', hello), TEMPLATE_PROCESS._process.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *both, still = done.stdout.splitlines()
    reply = dict(line.split() for line in both)
    assert reply["HelloFalse"] == first
    assert reply["HelloTrue"] != first
    assert still == f"still {first}"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")  # one that is dead may not be buried yet
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
