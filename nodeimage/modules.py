"""Selects the kernel modules that the image keeps, and the order in which they are loaded."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nodeimage.errors import ImageError
from nodeimage.programs import run

Dependencies = Mapping[str, Sequence[str]]


def kernel_version(rootfs: Path) -> str:
    """The version of the only kernel in the root filesystem. Raises `ImageError`."""
    versions = sorted(path.name for path in (rootfs / "lib" / "modules").iterdir())
    if len(versions) != 1:
        raise ImageError(f"one kernel was expected in the image, not {versions or 'none'}")
    return versions[0]


def read_dependencies(text: str) -> dict[str, list[str]]:
    """modules.dep: each module's path, with the paths of its dependencies, the deepest last."""
    return {name: needed.split() for name, _, needed in (line.partition(":") for line in text.splitlines())}


def closure(dependencies: Dependencies, prefixes: Iterable[str]) -> set[str]:
    """The paths of all modules whose path under kernel/ starts with one of the prefixes, and of their dependencies."""
    beginnings = tuple(f"kernel/{prefix}" for prefix in prefixes)
    chosen = {path for path in dependencies if path.startswith(beginnings)}
    return chosen.union(*(dependencies[path] for path in chosen))


def load_order(dependencies: Dependencies, names: Iterable[str]) -> list[str]:
    """The paths of the named modules and their dependencies, each after its own dependencies. Raises `ImageError`."""
    by_name = {Path(path).stem: path for path in dependencies}
    order: dict[str, None] = {}
    for name in names:
        if name not in by_name:
            raise ImageError(f"the kernel has no module {name}")
        path = by_name[name]
        order.update(dict.fromkeys([*reversed(dependencies[path]), path]))
    return list(order)


def prune(rootfs: Path, prefixes: Iterable[str]) -> None:
    """Remove all other modules, and index the remaining ones. Raises `ImageError`."""
    version = kernel_version(rootfs)
    directory = rootfs / "lib" / "modules" / version
    modules = closure(read_dependencies((directory / "modules.dep").read_text(encoding="utf-8")), prefixes)
    for path in sorted((directory / "kernel").rglob("*.ko*")):
        if str(path.relative_to(directory)) not in modules:
            path.unlink()
    for path in sorted((directory / "kernel").rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    run(["chroot", rootfs, "depmod", version])
