import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pcr_exp.system.process import StopWaiting, handled_signals


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_outside_of_the_loop_a_signal_acts_at_once(number: int, error: type[BaseException]) -> None:
    with pytest.raises(error), handled_signals():
        os.kill(os.getpid(), number)
        pytest.fail("went on")


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_in_the_loop_the_first_signal_waits_for_the_end(number: int, error: type[BaseException]) -> None:
    reached = False
    with handled_signals() as stop, pytest.raises(error) as raised, stop.graceful():
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        reached = True
    assert reached
    if number == signal.SIGTERM:
        assert raised.value.args == (143,)


def test_where_training_waits_for_a_batch_it_does_not_wait_for_an_update() -> None:
    with pytest.raises(KeyboardInterrupt), handled_signals() as stop, stop.graceful():
        with pytest.raises(StopWaiting), stop.waiting():
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("waited on")
        assert stop.requested
        with pytest.raises(StopWaiting), stop.waiting():
            pytest.fail("began to wait")


def test_a_second_signal_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), handled_signals() as stop, stop.graceful():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with handled_signals():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_to_another_process_of_the_run_counts() -> None:
    with handled_signals() as stop, pytest.raises(SystemExit), stop.graceful():
        assert not stop.agree(False)
        assert stop.agree(True)
        assert stop.requested


def test_without_a_signal_nothing_is_raised() -> None:
    with handled_signals() as stop, stop.graceful():
        pass
    assert not stop.requested


def test_a_forked_child_leaves_the_decision_to_its_parent() -> None:
    with handled_signals() as stop:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0 if not stop.requested else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_in_another_thread_there_is_nothing_to_handle() -> None:
    seen: list[bool] = []

    def work() -> None:
        with handled_signals() as stop, stop.graceful():
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """A program that a shell started in the background may receive a Ctrl-C for the foreground."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with handled_signals() as stop, stop.graceful():
        os.kill(os.getpid(), signal.SIGINT)
        assert not stop.requested
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.slow
def test_tests_that_interrupt_pass_where_interrupts_are_ignored() -> None:
    """As with `nohup make test &`."""
    interrupting = "tests/loading/test_closing.py::test_an_interrupt_while_waiting_leaves_nothing_behind"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", interrupting],
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
