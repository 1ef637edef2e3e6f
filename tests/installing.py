"""Environments with only what a reader has installed: the wheel of this tree, and the packages that it names.

`pip install 'stoker[server]'` takes the requirements from the wheel's own metadata. The packages themselves are those
of the environment that runs the tests, by links: nothing is downloaded, and nothing else can be imported.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where bash and curl are, and no `stoker` of anybody."""


def pip(*words: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def build(directory: Path) -> Path:
    """The wheel of this tree. What builds it comes with `make setup`; where it is missing, pip gets it."""
    isolated = [] if find_spec("hatchling") is None else ["--no-build-isolation"]
    pip("wheel", "--no-deps", *isolated, "--wheel-dir", directory, ROOT)
    (wheel,) = directory.glob("stoker-*.whl")
    return wheel


def unpack(wheel: Path, directory: Path) -> Distribution:
    """The wheel as pip installs it."""
    pip("install", "--no-deps", "--no-index", "--target", directory, wheel)
    (info,) = directory.glob("stoker-*.dist-info")
    return Distribution.at(info)


@cache
def shared_folders() -> frozenset[str]:
    """Folders in which several packages put their files, as `google`."""
    return frozenset(name for name, owners in packages_distributions().items() if len(set(owners)) > 1)


def linked(found: Distribution) -> set[str]:
    """What has to be linked for a package: its folders, and its files where a folder is not its own."""
    files = [file for file in found.files or () if ".." not in file.parts and file.parts[0] not in ("bin", "/")]
    return {str(file) if file.parts[0] in (*shared_folders(), "__pycache__") else file.parts[0] for file in files}


class Environment:
    """A fresh virtual environment, in which nothing is installed yet."""

    def __init__(self, directory: Path, stoker: Distribution) -> None:
        self._stoker = stoker
        venv.create(directory, symlinks=True)
        self.bin = directory / "bin"
        self.python = self.bin / "python"
        self._site = directory / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        self._installed: set[str] = set()

    @property
    def variables(self) -> dict[str, str]:
        """For processes in it: nothing of Stoker's or of this environment's own."""
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STOKER_", "PYTHON", "PYTEST", "VIRTUAL_ENV"))
        }
        return {**own, "PATH": os.pathsep.join((str(self.bin), *SYSTEM)), "PYTHONDONTWRITEBYTECODE": "1"}

    def install(self, requirement: str) -> None:
        for found in self._with_requirements(Requirement(requirement), set()):
            if found.name not in self._installed:
                self._installed.add(found.name)
                self._link(found)

    def _with_requirements(self, wanted: Requirement, seen: set[str]) -> Iterator[Distribution]:
        if str(wanted) in seen:
            return
        seen.add(str(wanted))
        found = self._stoker if wanted.name == "stoker" else distribution(wanted.name)
        assert wanted.specifier.contains(found.version, prereleases=True), f"{wanted}, but there is {found.version}"
        yield found
        for text in found.requires or ():
            further = Requirement(text)
            extras = wanted.extras or {""}
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                yield from self._with_requirements(further, seen)

    def _link(self, found: Distribution) -> None:
        for file in sorted(linked(found)):
            place = self._site / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(str(found.locate_file(file)))
        for script in found.entry_points.select(group="console_scripts"):
            self._write_script(script.name, script.module, script.attr)

    def _write_script(self, name: str, module: str, function: str) -> None:
        script = self.bin / name
        lines = (f"#!{self.python}", "import sys", f"from {module} import {function}", f"sys.exit({function}())", "")
        script.write_text("\n".join(lines))
        script.chmod(0o755)
