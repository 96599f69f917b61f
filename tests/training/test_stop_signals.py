import os
import signal
import threading
import time

import pytest

from unspool.training.loop import catch_stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted(number):
    before = signal.getsignal(number)
    with catch_stop_signals() as asked:
        assert not asked()
        os.kill(os.getpid(), number)
        assert asked()
        assert asked.signal == number
    assert signal.getsignal(number) is before


def test_the_same_signal_twice_in_a_moment_is_one():
    with catch_stop_signals() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)  # as torchrun passes on what the terminal has sent already
        assert asked.signal == signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_more_later_does_what_it_always_does(number, monkeypatch):
    seen = []
    monkeypatch.setattr("unspool.training.loop.REPEAT_SECONDS", 0.05)
    before = signal.signal(number, lambda *_: seen.append(number))
    try:
        with catch_stop_signals():
            os.kill(os.getpid(), number)
            time.sleep(0.1)
            assert seen == []
            os.kill(os.getpid(), number)
            assert seen == [number]
    finally:
        signal.signal(number, before)


def test_without_a_signal_all_is_as_before():
    before = [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)]
    with catch_stop_signals() as asked:
        pass
    assert not asked()
    assert [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_is_left_alone():
    seen = []

    def run():
        with catch_stop_signals() as asked:
            seen.append(asked())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
