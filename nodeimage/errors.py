"""What can go wrong with the nodes' image. Every message says what to do next."""

from __future__ import annotations

BUILD_IT = "build it: ./brownout image build"


class ImageError(Exception):
    """The image cannot be built or used; the message names the step, the cause and the remedy."""


class ImageMissingError(ImageError):
    """No image has been built, or the one that was is not whole."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; {BUILD_IT}")


class ImageStaleError(ImageError):
    """An image is there, but was built from another recipe than the one in this project."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; {BUILD_IT}")
