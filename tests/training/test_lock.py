import os
import signal
import subprocess
import sys

import pytest

from unspool.training.run_folder import lock_folder

HOLD = "import sys, time; from pathlib import Path; from unspool.training.run_folder import lock_folder\nwith lock_folder(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def test_two_at_once_are_refused_and_a_dead_one_lets_go(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(BlockingIOError, match=f"another process \\({other.pid}\\)"),
            lock_folder(tmp_path),
        ):
            pass
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    with lock_folder(tmp_path):
        pass


def test_it_is_free_afterwards(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path):
            pass
