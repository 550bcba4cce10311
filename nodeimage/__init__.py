"""The image that nodes run: a lean Debian as a virtual machine's disk, a Vagrant box and a root filesystem.

It contains the broker's packages, so that no node needs a network. It is built from Debian's packages and cached by its
content."""

from nodeimage.archives import App, FilesArchive, app_archive, files_archive
from nodeimage.build import MACHINES, build, check_machine, remove_all
from nodeimage.errors import ImageError, ImageMissingError, ImageStaleError
from nodeimage.image import Image, built, current, find, wanted_key
from nodeimage.python_packages import PythonPackages, site_archive, site_key
from nodeimage.recipe import JAVA, OPTIONS

__all__ = [
    "JAVA",
    "MACHINES",
    "OPTIONS",
    "App",
    "FilesArchive",
    "Image",
    "ImageError",
    "ImageMissingError",
    "ImageStaleError",
    "PythonPackages",
    "app_archive",
    "build",
    "built",
    "check_machine",
    "current",
    "files_archive",
    "find",
    "remove_all",
    "site_archive",
    "site_key",
    "wanted_key",
]
