"""Shared parts of the tests of the nodes' image: a small project, and programs that stand in for the machine's."""

import shutil
from pathlib import Path

import nodeimage
from nodeimage import archives
from nodeimage.image import image_in, images_directory

ROOT = Path(__file__).resolve().parents[2]

LOCK = """\
aiokafka==0.14.0 \\
    --hash=sha256:aa
    # via brownout (pyproject.toml)
cramjam==2.14.0 \\
    --hash=sha256:a1
    # via brownout (pyproject.toml)
crc32c==2.9 \\
    --hash=sha256:c1 \\
    --hash=sha256:c2
    # via brownout (pyproject.toml)
msgspec==0.22.0 \\
    --hash=sha256:d1
    # via brownout (pyproject.toml)
needed==1.0 \\
    --hash=sha256:e1
    # via
    #   aiokafka
    #   needed-too
needed-too==2.0 \\
    --hash=sha256:f1
    # via uvloop
uvloop==0.23.0 \\
    --hash=sha256:b1
    # via brownout (pyproject.toml)
"""


def small_project(directory: Path) -> Path:
    """This project as far as its image is concerned, to be changed at will."""
    project = directory / "project"
    shutil.copytree(ROOT / "nodeimage", project / "nodeimage", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "requirements.lock").write_text(LOCK)
    (project / "broker" / "log").mkdir(parents=True)
    (project / "broker" / "__init__.py").write_text("")
    (project / "broker" / "log" / "segment.py").write_text("SEGMENT = 1\n")
    return project


def stand_in(directory: Path, name: str, script: str) -> None:
    """A program that runs the shell script, in a PATH that starts with `directory`."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def archive_of(directory: Path, destination: Path) -> None:
    archives.write({str(p.relative_to(directory)): p for p in directory.rglob("*") if p.is_file()}, destination)


def pretend_built(project: Path, options: tuple[str, ...] = ()) -> nodeimage.Image:
    """Put an image's files where the present recipe's would be."""
    key = nodeimage.wanted_key(project, options)
    image = image_in(images_directory(project) / key, key, nodeimage.site_key(project))
    (image.rootfs / "usr").mkdir(parents=True)
    for path in (image.disk, image.kernel, image.initrd, image.box, image.site):
        path.write_bytes(b"")
    record = {
        "key": key,
        "site_key": image.site_key,
        "suite": "bookworm",
        "kernel": "6.1.0",
        "packages": {"a": "1"},
        "options": list(options),
    }
    image.write_record({**record, "built_at": "2026-01-01T00:00:00Z", "build_seconds": 40.0})
    return image
