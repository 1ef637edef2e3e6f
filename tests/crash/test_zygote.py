"""The zygote itself: fresh processes, ended one by one, none left behind."""

import os
import signal
import subprocess
import sys

import pytest

from tests.crash.roles import count_connections, echo, stumble
from tests.crash.zygote import ROOT, ChildFailed, Zygote, the_zygote


def test_a_child_is_a_process_of_its_own():
    with the_zygote().fork(echo, "one") as one, the_zygote().fork(echo, "two") as two:
        assert one.receive() == ("one", one.pid)
        assert two.receive() == ("two", two.pid)
        assert len({one.pid, two.pid, os.getpid()}) == 3
        one.send("hello")
        assert one.receive() == "hello"


def test_it_ends_in_order_or_by_a_signal():
    with the_zygote().fork(echo, "") as child:
        child.send(None)
        assert child.join() == 0
    with the_zygote().fork(echo, "") as child:
        assert child.kill() == -signal.SIGKILL


def test_what_it_said_before_it_was_killed_is_heard():
    with the_zygote().fork(echo, "last words") as child:
        while not child.has_spoken(1):
            pass
        child.strike()
        assert child.receive()[0] == "last words"
        with pytest.raises(EOFError):
            child.receive()


def test_an_error_in_it_is_told():
    with the_zygote().fork(stumble) as child:
        with pytest.raises(ChildFailed, match="over a stone"):
            child.receive()
        assert child.join() == 1


def test_it_inherits_no_connection_to_a_database():
    with the_zygote().fork(count_connections) as child:
        assert child.receive() == 0


def test_closing_the_zygote_ends_its_children():
    zygote = Zygote()
    child = zygote.fork(echo, "")
    child.receive()
    zygote.close()
    assert child.has_spoken(60), "its end of the connection is closed"


DIE = """
import os
from tests.crash.roles import echo
from tests.crash.zygote import the_zygote
child = the_zygote().fork(echo, "")
os.write(1, b"%d" % child.receive()[1])
os._exit(9)
"""


def test_nothing_outlives_tests_that_die():
    """The pipe of its standard output is inherited by all of them: the run ends when the last one has."""
    died = subprocess.run([sys.executable, "-c", DIE], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert died.returncode == 9, died.stderr.decode()
    assert died.stdout.isdigit()
