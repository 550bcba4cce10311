"""Builds the image from Debian's packages and our files: a disk and a box. An incomplete build is never used."""

import errno
import os
import platform
import shutil
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nodeimage.contents as contents
import nodeimage.modules as modules
import nodeimage.recipe as recipe
from installation.commands import command_anywhere
from installation.files import cache_directory
from installation.programs import one_at_a_time, run_program
from nodeimage.errors import ImageError, ImageMissingError, ImageStaleError
from nodeimage.image import (
    UNFINISHED,
    Image,
    built,
    current,
    find,
    image_in,
    images_directory,
    make_current,
    wanted_key,
)
from nodeimage.python_packages import site_archive, site_key

Progress = Callable[[str], None]

MACHINES = ("x86_64", "AMD64")
"""The machine types, as `platform.machine` reports them, that can build and boot images."""
_LOCK = "lock"
_ARCHIVES = ("sites", "apps", "files")
_NEEDED_BYTES = 2 << 30
# The newest stale image stays: a campaign that started with it may still be running.
_KEPT_STALE = 1


def build(project: Path, on_progress: Progress, *, options: Collection[str] = (), force: bool = False) -> Image:
    """The image of the project's recipe with these options, built unless it exists (with `force`, always).

    Needs root, a network and about a minute. An interrupted or failed build leaves nothing behind; concurrent builds
    wait for each other. Raises `ImageError`.
    """
    check_machine()
    unknown = sorted(set(options) - set(recipe.OPTIONS))
    if unknown:
        raise ImageError(f"unknown option of an image: {unknown[0]!r}; known: {', '.join(sorted(recipe.OPTIONS))}")
    directory = images_directory(project)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(directory / _LOCK, lambda: on_progress("another build is running; waiting for it")):
            for leftover in directory.glob(f"{UNFINISHED}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            image = None if force else _found(project, options)
            if image is None:
                image = _build(project, directory, on_progress, options)
            make_current(image)
            return image
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImageError("the disk is full: free 2 GB, then run the same command again") from error
        raise ImageError(f"the image could not be built: {error}") from error


def remove_all(project: Path, on_progress: Progress = lambda _: None) -> int:
    """Remove all images, finished or not, and the cached archives; returns the number of images.

    Waits for the end of a running build."""
    directory = images_directory(project)
    if not directory.is_dir():
        return 0
    with one_at_a_time(directory / _LOCK, lambda: on_progress("another build is running; waiting for it")):
        count = len(built(project))
        for path in (*directory.iterdir(), *(cache_directory(project) / name for name in _ARCHIVES)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink(missing_ok=True)
    return count


def _found(project: Path, options: Collection[str]) -> Image | None:
    try:
        image = find(project, options)
        return image if image.key == wanted_key(project, options) else None
    except (ImageMissingError, ImageStaleError):
        return None


def check_machine() -> None:
    """Check that this machine can build images. Raises `ImageError` if not."""
    if platform.machine() not in MACHINES:
        raise ImageError(
            f"images are built for x86_64 only, and this machine is {platform.machine()}; "
            "the namespace and inventory worlds need no image"
        )
    if os.geteuid() != 0:
        raise ImageError(
            f"an image has files of several owners, so root must build it: sudo {command_anywhere('image', 'build')}"
        )


def _build(project: Path, directory: Path, on_progress: Progress, options: Collection[str]) -> Image:
    free = shutil.disk_usage(directory).free
    if free < _NEEDED_BYTES:
        raise ImageError(f"{directory} has {free >> 20} MB free and a build needs {_NEEDED_BYTES >> 20} MB; free some")
    began = time.monotonic()
    key = wanted_key(project, options)
    unfinished = image_in(directory / f"{UNFINISHED}{key}", key, site_key(project, recipe.PYTHON, recipe.MACHINE))
    unfinished.rootfs.parent.mkdir(parents=True, mode=0o700)
    unfinished.directory.chmod(0o755)
    try:
        _fill(project, unfinished, on_progress, options)
        unfinished.write_record(_record(unfinished, time.monotonic() - began, options))
        image = image_in(directory / key, key, unfinished.site_key)
        _replace(unfinished.directory, image.directory)
    except BaseException:
        on_progress("removing the unfinished image")
        shutil.rmtree(unfinished.directory, ignore_errors=True)
        raise
    fresh = current(project)
    stale = [path for path in built(project) if path not in fresh]
    for path in stale[: max(0, len(stale) - _KEPT_STALE)]:
        shutil.rmtree(path, ignore_errors=True)
    return image


def _fill(project: Path, image: Image, on_progress: Progress, options: Collection[str]) -> None:
    room = project / "nodeimage"
    log = images_directory(project) / "build.log"
    log.write_text("", encoding="utf-8")
    # pip and apt alternately wait for the network.
    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(site_archive, project, recipe.PYTHON, recipe.MACHINE, on_progress)
        contents.install(image.rootfs, log, on_progress, options)
        site = fetching.result()
    shutil.copyfile(site.archive, image.site)
    on_progress("adding the node's own files, removing what no node needs")
    shutil.copyfile(_kernel(image.rootfs), image.kernel)
    contents.customize(image.rootfs, room / "guest", site)
    contents.make_initrd(image.rootfs, room / "initrd" / "init", recipe.INITRD_MODULES, image.initrd)
    on_progress("making the disk")
    contents.make_disk(image.rootfs, image.disk)
    on_progress("making the Vagrant box")
    contents.make_box(image.disk, room / "box" / "Vagrantfile", image.box)


def _kernel(rootfs: Path) -> Path:
    return rootfs / "boot" / f"vmlinuz-{modules.kernel_version(rootfs)}"


def _record(image: Image, seconds: float, options: Collection[str]) -> dict[str, object]:
    query = ["dpkg-query", "--admindir", str(image.rootfs / "var" / "lib" / "dpkg"), "--show"]
    packages = run_program([*query, "-f", "${Package} ${Version}\n"])
    return {
        "key": image.key,
        "options": sorted(options),
        "suite": recipe.SUITE,
        "architecture": recipe.DEBIAN_ARCHITECTURE,
        "kernel": modules.kernel_version(image.rootfs),
        "site_key": image.site_key,
        "built_at_ns": time.time_ns(),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "build_seconds": round(seconds, 1),
        "bytes": {
            path.name: path.stat().st_blocks * 512 for path in (image.disk, image.kernel, image.initrd, image.box)
        },
        "packages": dict(line.split(" ", 1) for line in packages.stdout.splitlines()),
    }


def _replace(new: Path, place: Path) -> None:
    """Move a finished image to its place; removes an existing one (after a forced build, or when it was damaged)."""
    old = place.with_name(f"{UNFINISHED}old-{place.name}")
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
