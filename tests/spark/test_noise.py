"""Routine messages of a JVM are left out; everything else is shown."""

import os
import subprocess
import sys

from stoker.spark.jvm_output import NOISE, sifted

GREETING = b'Setting default log level to "WARN".\n'


def test_known_greetings_are_left_out_and_all_else_comes_through():
    error = b"12:00:00 ERROR Executor: no space left on device\n\tat a.b.C(C.java:1)\n"
    assert sifted(GREETING + error + GREETING) == (error, b"")


def test_a_line_that_comes_in_pieces_is_recognised():
    for cut in range(1, len(GREETING)):
        told, held = sifted(GREETING[:cut])
        assert told == b""
        assert sifted(held + GREETING[cut:]) == (b"", b"")


def test_words_without_an_end_of_line_are_not_kept_waiting():
    """A bar of progress never ends its line."""
    assert sifted(b"\r[Stage 1:===>   (3 + 1) / 8]") == (b"\r[Stage 1:===>   (3 + 1) / 8]", b"")


def test_a_process_writes_through_and_standard_error_is_as_it_was_afterwards():
    noisy = f"import sys; sys.stderr.write({NOISE[0].decode()!r} + chr(10) + 'a true error' + chr(10))"
    program = (
        "import os, subprocess, sys, threading\n"
        "from stoker.spark.jvm_output import kept_out\n"
        "with kept_out():\n"
        f"    child = subprocess.Popen([sys.executable, '-c', {noisy!r}])\n"
        "child.wait()\n"
        "[one.join() for one in threading.enumerate() if one.name == 'stoker-spark-stderr']\n"
        "os.write(2, b'our own')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, env=os.environ | {"PYTHONPATH": "src"})
    assert ran.stderr == b"a true error\nour own"
