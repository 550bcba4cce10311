"""Finds the project's image and checks that it matches the recipe."""

import itertools
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodeimage.archives as archives
import nodeimage.recipe as recipe
from installation.files import cache_directory
from nodeimage.errors import ImageMissingError, ImageStaleError
from nodeimage.python_packages import site_key

# The files of this room that determine an image's content; the others only find and report it.
_SOURCES = ("recipe.py", "contents.py", "modules.py", "guest", "initrd", "box")
_RECORD = "image.json"
# Prefix of a directory with an unfinished build; it is never used as an image.
UNFINISHED = ".unfinished-"
CURRENT = "current"


@dataclass(frozen=True)
class Image:
    """One image: the same root filesystem as a directory tree, as a disk and as a Vagrant box.

    `kernel` and `initrd` boot the disk; `site` is the archive of the broker's packages, which the root filesystem
    already has in /opt/brownout/site, with `site_key` in /opt/brownout/site.key.
    """

    key: str
    directory: Path
    rootfs: Path
    disk: Path
    kernel: Path
    initrd: Path
    box: Path
    site: Path
    site_key: str

    @property
    def record(self) -> dict[str, Any]:
        """The build's record: versions, sizes, times."""
        noted: dict[str, Any] = json.loads((self.directory / _RECORD).read_text(encoding="utf-8"))
        return noted

    def write_record(self, record: dict[str, Any]) -> None:
        (self.directory / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    def missing_parts(self) -> list[str]:
        """The names of missing files."""
        parts = (self.rootfs / "usr", self.disk, self.kernel, self.initrd, self.box, self.site)
        return [path.name for path in (*parts, self.directory / _RECORD) if not path.exists()]


def images_directory(project: Path) -> Path:
    return cache_directory(project) / "images"


def wanted_key(project: Path, options: Collection[str] = ()) -> str:
    """The key of the image of the project's recipe with these options: a hash of packages, files, pins and building
    code.

    Raises `ImageError` when the pins cannot be read."""
    room = project / "nodeimage"
    files = {
        str(path.relative_to(room)): path
        for source in _SOURCES
        for path in ([room / source] if (room / source).is_file() else sorted((room / source).rglob("*")))
        if path.is_file() and "__pycache__" not in path.parts
    }
    salt = f"image 1 {site_key(project, recipe.PYTHON, recipe.MACHINE)} {' '.join(sorted(options))}"
    return archives.content_key(files, salt=salt)


def image_in(directory: Path, key: str, site: str) -> Image:
    """The image in a directory with the standard layout."""
    return Image(
        key=key,
        directory=directory,
        # Only its owner may enter the directory: it has setuid programs, which nothing updates.
        rootfs=directory / "private" / "rootfs",
        disk=directory / "node.qcow2",
        kernel=directory / "vmlinuz",
        initrd=directory / "initrd",
        box=directory / "node.box",
        site=directory / "site.tar.gz",
        site_key=site,
    )


def find(project: Path, needs: Collection[str] = ()) -> Image:
    """The smallest image of the recipe that has the options `needs`.

    Raises `ImageMissingError` or `ImageStaleError`; their messages have the command that builds it."""
    for options in _variants(needs):
        key = wanted_key(project, options)
        image = image_in(images_directory(project) / key, key, site_key(project, recipe.PYTHON, recipe.MACHINE))
        if image.directory.is_dir():
            missing = image.missing_parts()
            if missing:
                raise ImageMissingError(
                    f"the nodes' image in {image.directory} is incomplete ({', '.join(missing)} missing)", options
                )
            built_for = image.record.get("architecture", recipe.DEBIAN_ARCHITECTURE)
            if built_for != recipe.DEBIAN_ARCHITECTURE:
                raise ImageStaleError(
                    f"the nodes' image in {image.directory} is for {built_for}, not {recipe.DEBIAN_ARCHITECTURE}; "
                    "remove that directory",
                    options,
                )
            return image
    subject = f"the nodes' image with {', '.join(sorted(needs))}" if needs else "the nodes' image"
    present = built(project)
    if present and not current(project):
        raise ImageStaleError(f"{subject} was built from an older recipe than this project's", needs)
    raise ImageMissingError(f"{subject} has not been built", needs)


def current(project: Path) -> list[Path]:
    """The directories of images that match the current recipe, with any options."""
    keys = {wanted_key(project, options) for options in _variants(())}
    return [path for path in built(project) if path.name in keys]


def _variants(needs: Collection[str]) -> list[tuple[str, ...]]:
    """Every set of options that includes the needed ones, the smallest first."""
    options = sorted(set(recipe.OPTIONS) - set(needs))
    choices = itertools.chain.from_iterable(itertools.combinations(options, size) for size in range(len(options) + 1))
    return [tuple(sorted((*needs, *extras))) for extras in choices]


def built(project: Path) -> list[Path]:
    """The directories of all images, current or not, the newest last."""
    directories = [path.parent for path in images_directory(project).glob(f"*/{_RECORD}")]
    return sorted(
        (path for path in directories if not path.is_symlink() and not path.name.startswith(UNFINISHED)),
        key=lambda path: path.stat().st_mtime,
    )


def make_current(image: Image) -> None:
    """Point `images/current` in the cache to this image; `vagrant up` by hand looks there."""
    link = image.directory.with_name(f"{UNFINISHED}{CURRENT}")
    link.unlink(missing_ok=True)
    link.symlink_to(image.directory.name)
    link.replace(image.directory.with_name(CURRENT))
