"""What can go wrong with the nodes' image. Every message says what to do next."""

from __future__ import annotations

from collections.abc import Collection

from installation.commands import command


class ImageError(Exception):
    """The image cannot be built or used; the message names the step, the cause and the remedy."""


class ImageMissingError(ImageError):
    """No image has been built, or the one that was is not whole."""

    def __init__(self, why: str, options: Collection[str] = ()) -> None:
        super().__init__(f"{why}; build it: {build_command(options)}")


class ImageStaleError(ImageError):
    """An image is there, but was built from another recipe than the one in this project."""

    def __init__(self, why: str, options: Collection[str] = ()) -> None:
        super().__init__(f"{why}; build it: {build_command(options)}")


def build_command(options: Collection[str] = ()) -> str:
    """What builds an image with these options, for people to type."""
    return command("image", "build", *(word for option in sorted(options) for word in ("--with", option)))
