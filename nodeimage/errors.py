"""Errors of the nodes' image. Every message names the next step."""

from collections.abc import Collection

from installation.commands import command


class ImageError(Exception):
    """The image cannot be built or used; the message names the step, the cause and the remedy."""


class ImageMissingError(ImageError):
    """No image has been built, or the existing one is incomplete."""

    def __init__(self, reason: str, options: Collection[str] = ()) -> None:
        super().__init__(f"{reason}; build it: {build_command(options)}")


class ImageStaleError(ImageError):
    """An image exists, but was built from another recipe than this project's."""

    def __init__(self, reason: str, options: Collection[str] = ()) -> None:
        super().__init__(f"{reason}; build it: {build_command(options)}")


def build_command(options: Collection[str] = ()) -> str:
    """The command that builds an image with these options, for messages."""
    return command("image", "build", *(part for option in sorted(options) for part in ("--with", option)))
