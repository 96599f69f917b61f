import os
import signal
import threading

import pytest

from unspool.training.interrupt import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted(number):
    before = signal.getsignal(number)
    with interruptible() as asked:
        assert not asked()
        os.kill(os.getpid(), number)
        assert asked()
        assert asked.signal == number
        assert signal.getsignal(number) is before  # a second one does what it always does
    assert signal.getsignal(number) is before


def test_without_a_signal_all_is_as_before():
    before = [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)]
    with interruptible() as asked:
        pass
    assert not asked()
    assert [signal.getsignal(it) for it in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_is_left_alone():
    seen = []

    def run():
        with interruptible() as asked:
            seen.append(asked())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
