"""Loads systems: those that come with Brownout by name, user-defined ones by directory."""

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import systems.catalog as catalog
from history.own_classes import load_limit
from systems.description import FILE_NAME, Description, read
from systems.errors import ClusterError, InputError
from systems.service import Place
from systems.system import Deployed, System
from systems.toml_tables import place_of_key, suggestion
from workloads.user_module import place_of, place_within, see_beside

# ---- Renders all templates of a run's system for nodes that do not exist yet, before any node starts.


def rehearse(deployed: Deployed) -> None:
    """Raises `InputError` naming file and line of a template that cannot be filled in for one of the nodes."""
    nodes = _stand_ins(deployed)
    for node in nodes:
        deployed.service(node, nodes)


def rehearse_command(deployed: Deployed, words: Sequence[str]) -> None:
    """Raises `InputError` if a campaign's command cannot be filled in for one of the nodes."""
    nodes = _stand_ins(deployed)
    for node in nodes:
        deployed.command(words, node, nodes)


def _stand_ins(deployed: Deployed) -> list[Place]:
    """Nodes with the values of the namespace world."""
    return [
        Place(
            f"n{number}",
            number,
            f"127.0.0.{number}",
            deployed.ports(number),
            data_dir="/data",
            etc_dir="/etc/brownout",
            var_dir="/var/lib/brownout",
            files_dir="/opt/brownout/files",
            shared_dir="/brownout-shared",
            python="/usr/bin/python3",
            python_path="/opt/brownout/app",
        )
        for number in range(1, len(deployed.roles) + 1)
    ]


DEFAULT = "brownout"
# Methods that are called during a run; their callers write errors to the run's journal.
_UNWRAPPED = "observe"


def known() -> dict[str, Path]:
    """The systems that come with Brownout: their directories, by name."""
    return {system.name: system.directory for system in catalog.all_systems() if system.is_described}


def load_system(name: str = DEFAULT, *, version: str | None = None, directory: Path | None = None) -> System:
    """The system of this name, or the one that `directory` describes. Raises `InputError`."""
    if directory is None:
        places = known()
        if name not in places:
            raise InputError(
                f"unknown system {name!r}; {suggestion(name, places)}; name a system of your own by its directory: "
                'path = "..."'
            )
        directory = places[name]
    description = read(directory)
    if description.name != name:
        place = place_of_key(description.directory / FILE_NAME, "name")
        raise InputError(f"{place}: its name is {description.name!r}, but {name!r} was requested")
    return family(description)(description, version)


def family(description: Description) -> type[System]:
    """The class that a description names; `System` by default. Raises `InputError`."""
    if description.class_name is None:
        return System

    def refusal(reason: str) -> InputError:
        return InputError(f"{place_of_key(description.directory / FILE_NAME, 'class')}: class: {reason}")

    file_name, colon, class_name = description.class_name.partition(":")
    path = description.directory / file_name
    if not colon or not path.is_file():
        raise refusal(f'{description.class_name!r} is not "parser.py:Class" with an existing file')
    try:
        module = _module(path)
    except (Exception, SystemExit) as error:  # a user's module may call `sys.exit(...)`
        raise refusal(f"{path} cannot be loaded: {place_of(error)}") from error
    class_ = getattr(module, class_name, None)
    if class_ is None:
        raise refusal(f"{path} has no {class_name}")
    if not (isinstance(class_, type) and issubclass(class_, System)):
        raise refusal(f"{class_name} is not a brownout_api.System; derive it from that")
    return telling(class_, description.directory) if description.own_directory else class_


def telling(class_: type[System], directory: Path) -> type[System]:
    """The class with its user-defined methods wrapped: an unforeseen exception becomes an `InputError` with file and
    line. `directory`: the directory of the user's files."""
    namespace: dict[str, Any] = {"__module__": class_.__module__, "__doc__": class_.__doc__}
    for name in dir(System):
        theirs = inspect.getattr_static(class_, name)
        if name == _UNWRAPPED or (name.startswith("_") and name != "__init__"):
            continue
        if theirs is inspect.getattr_static(System, name):
            continue
        if isinstance(theirs, FunctionType):
            namespace[name] = _telling(theirs, directory)
        elif isinstance(theirs, property) and theirs.fget is not None:
            namespace[name] = property(_telling(theirs.fget, directory))
    return cast("type[System]", type(class_.__name__, (class_,), namespace))


def _telling(method: Callable[..., Any], directory: Path) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except (InputError, ClusterError):  # their messages are meant for users
            raise
        except (Exception, SystemExit) as error:
            raise InputError(place_within(directory, error, method)) from error

    return checked


def _module(path: Path) -> object:
    """Import a Python file: Brownout's modules by their names, others under a name made from their path."""
    home = catalog.SYSTEMS
    if path.is_relative_to(home):
        return importlib.import_module(".".join(path.relative_to(home.parent).with_suffix("").parts))
    name = f"brownout_system_{abs(hash(str(path)))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(f"{path}: is not a Python file")
        see_beside(path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look up the module by name
        try:
            with load_limit():
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
