"""Loads the client class that a user names; errors have the file and the line."""

import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Final, TypeVar

from history.own_classes import load_limit
from installation.files import PROJECT_ROOT
from workloads.api import Client

C = TypeVar("C", bound=Client)
_LIBRARY_PATHS: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES: Final = (
    f"{Path(__file__).parent}/",
    f"{PROJECT_ROOT}/history/",
    *(f"{sysconfig.get_path(name)}/" for name in _LIBRARY_PATHS),
    "<",
)
"""The starts of the paths of other files than a user's."""


class ClientClassError(Exception):
    """A client class that cannot be loaded or constructed; the message has file, line and reason."""


def load_class(named: str, base: type[C]) -> type[C]:
    """The class that `"module:Class"` or `"/path/file.py:Class"` names. Raises `ClientClassError`."""
    module_name, _, name = named.rpartition(":")
    try:
        module = _module(module_name)
    except KeyboardInterrupt:
        raise  # Ctrl-C ends the command
    except BaseException as error:  # a user's script may end with `sys.exit(main())`
        raise ClientClassError(f"client_class {named}: {place_of(error)}") from error
    class_ = getattr(module, name, None)
    if not isinstance(class_, type):
        raise ClientClassError(f"client_class {named}: {module.__file__} has no class {name}")
    line = f"{module.__file__}:{_line(class_)}"
    if not issubclass(class_, base):
        raise ClientClassError(f"{line}: {name} is not a {base.__name__}; derive it from brownout_api.{base.__name__}")
    if missing := sorted(getattr(class_, "__abstractmethods__", ())):
        raise ClientClassError(f"{line}: {name} does not define {', '.join(missing)}")
    return class_


def place_of(error: BaseException) -> str:
    """An exception as `file:line: Type: message`: the innermost line of a user's file, or of its traceback."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}: " if error.filename else ""  # empty for null bytes
        return f"{place}SyntaxError: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    place = _innermost_of_user(frames) or (f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else "")
    return f"{place}{type(error).__name__}: {error}"


def place_within(directory: Path, error: BaseException, called: object = None) -> str:
    """As `place_of`, with the innermost line below the user's directory. If the traceback has no such line, as for
    wrong arguments, the line of the function `called`."""
    frames = traceback.extract_tb(error.__traceback__)
    place = _innermost(directory, frames) or own_line(directory, called)
    return f"{place}{type(error).__name__}: {error}" if place else place_of(error)


def own_line(directory: Path, at: object) -> str:
    """`file:line: ` of the innermost line below a directory: of a frame, or of a function's start; otherwise empty."""
    if isinstance(at, FrameType):
        return _innermost(directory, traceback.extract_stack(at))
    code = getattr(at, "__code__", None)
    if not isinstance(code, CodeType) or not Path(code.co_filename).is_relative_to(directory):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}: "


def place_of_call(thread: int) -> str:
    """`file:line: ` that a thread executes: the innermost line of a user's file, or an empty text."""
    frame = sys._current_frames().get(thread)
    return _innermost_of_user(traceback.extract_stack(frame)) if frame else ""


def method_line(cls: type, method: str) -> str:
    """`file:line: ` of a class's method, or of the class if the method is not a Python function."""
    code = getattr(inspect.unwrap(getattr(cls, method)), "__code__", None)
    if isinstance(code, CodeType):
        return f"{code.co_filename}:{code.co_firstlineno}: "
    return f"{getattr(sys.modules.get(cls.__module__), '__file__', cls.__module__)}:{_line(cls)}: "


def see_beside(path: Path) -> None:
    """Let a user's module import other modules of its directory. They come after Brownout's own rooms, whose names a
    user's module may have, and before installed packages."""
    if str(path.parent) not in sys.path:
        rooms = [place for place, entry in enumerate(sys.path) if entry and Path(entry).resolve() == PROJECT_ROOT]
        sys.path.insert(rooms[0] + 1 if rooms else 0, str(path.parent))


def _innermost(directory: Path, frames: traceback.StackSummary) -> str:
    lines = [f"{frame.filename}:{frame.lineno}: " for frame in frames if Path(frame.filename).is_relative_to(directory)]
    return lines[-1] if lines else ""


def _innermost_of_user(frames: Sequence[traceback.FrameSummary]) -> str:
    """Of a file that is neither our room's, nor Python's, nor an installed package's."""
    lines = [f"{frame.filename}:{frame.lineno}: " for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return lines[-1] if lines else ""


def _module(location: str) -> ModuleType:
    if not location.endswith(".py"):
        return importlib.import_module(location)
    path = Path(location).resolve()
    see_beside(path)
    # A user's file may have the name of one of our rooms, and must not replace it.
    is_taken = path.stem in sys.modules or (PROJECT_ROOT / path.stem).is_dir()
    name = f"client_{path.stem}" if is_taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with load_limit():
        spec.loader.exec_module(module)
    return module


def _line(class_: type) -> int:
    try:
        return inspect.getsourcelines(class_)[1]
    except (OSError, TypeError):
        return 1
