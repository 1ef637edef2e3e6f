"""Imports the modules of an application. Errors carry the traceback of the user's own code.

Nothing here knows what an app is.
"""

import importlib
import sys
import traceback
from types import FrameType, ModuleType, TracebackType

from stoker.app.errors import CannotLoad

OURS = ("importlib", "stoker")
"""Packages whose frames say nothing about the user's code."""


def imported(name: str, directory: str | None = None) -> ModuleType:
    """The module of that name; `directory` is searched first, as with `python -m`. Raises `CannotLoad`."""
    if directory is not None and directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if own_trace(error) is None:
            raise CannotLoad(missing(name, error, directory)) from None
        raise broken(name, f"{place_of(error)} imports {error.name!r}, which does not exist", error) from error
    except SystemExit as error:
        what = f"{place_of(error)} calls sys.exit({error.code!r}): importing a module must not end the program"
        raise broken(name, what, error) from error
    except Exception as error:
        raise broken(name, f"{type(error).__name__}: {error} ({place_of(error)})", error) from error


def missing(name: str, error: ModuleNotFoundError, directory: str | None) -> str:
    where = "Python's package path" if directory is None else f"{directory} and Python's package path"
    return (
        f"there is no module {error.name!r}: looked in {where}; start this in the directory that has it, or install"
        f" it{hint_for(name)}"
    )


def hint_for(target: str) -> str:
    path = target.partition(":")[0]
    if path.endswith(".py") or "/" in path:
        dotted = path.removesuffix(".py").strip("./").replace("/", ".")
        return f"; for the file {path}, write {dotted}:app"
    return ""


def broken(name: str, what: str, error: BaseException) -> CannotLoad:
    """The error, with the traceback from the user's first line on."""
    trace = own_trace(error)
    told = "".join(traceback.format_exception(type(error), error, trace))
    return CannotLoad(f"the module {name!r} cannot be imported: {what}", trace=told)


def own_trace(error: BaseException) -> TracebackType | None:
    """The traceback without the frames of Python's and Stoker's importing; None if no code of the user ran."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame):
        trace = trace.tb_next
    return trace


def is_ours(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in OURS


def place_of(error: BaseException) -> str:
    """The file and line of the error."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}, line {error.lineno}"
    own = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__) if not is_ours(frame)
    ]
    return f"{own[-1][0]}, line {own[-1][1]}" if own else "it"
