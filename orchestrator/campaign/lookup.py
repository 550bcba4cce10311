"""Finds a campaign's file by its name, and names it on the command line."""

from pathlib import Path

from installation.files import PROJECT_ROOT, is_installed
from orchestrator.errors import UsageError

DEMO = "demo"
_DIRECTORY = "campaigns"
_SHIPPED = PROJECT_ROOT / _DIRECTORY
_OF_MUTANTS = _SHIPPED / "mutants"
"""Campaigns that were written to kill one mutant of the broker each."""


def find(given: str) -> Path:
    """The campaign's file: a path, or a name in `campaigns/` of the current directory or of Brownout.

    Relative to the current directory if it is below: the replay command quotes it. Raises `UsageError`."""
    if not given:
        raise UsageError("the campaign's name is empty; give a TOML file, or leave it out for the demo")
    for candidate in (Path(given), *_by_name(given), PROJECT_ROOT / given):
        if candidate.is_file():
            return shortest(candidate)
    if Path(given).is_dir():
        raise UsageError(f"{given} is a directory; give a campaign's TOML file")
    names = {path.stem for place in (Path(_DIRECTORY), _SHIPPED) for path in place.glob("[!.]*.toml")}
    raise UsageError(
        f"{given}: unknown campaign; give a TOML file, one of {', '.join(sorted(names))}, or one of those in "
        f"{shortest(_OF_MUTANTS)}/"
    )


def _by_name(name: str) -> tuple[Path, Path, Path]:
    file = f"{name}.toml"
    return Path(_DIRECTORY) / file, _SHIPPED / file, _OF_MUTANTS / file


def shown(path: Path) -> str:
    """The argument that names this campaign. Those of an installed package go by name: the package's path may
    change."""
    name = path.stem
    theirs, *shipped = _by_name(name)
    by_name = is_installed() and path.resolve() in shipped and not theirs.exists() and not Path(name).exists()
    return name if by_name else str(path)


def shortest(path: Path) -> Path:
    """Relative to the current directory if it is below."""
    path = path.resolve()
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
