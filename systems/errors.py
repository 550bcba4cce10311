"""What goes wrong with systems on purpose: what a user wrote, and clusters that do not answer."""

from __future__ import annotations


class InputError(Exception):
    """A file that is not understood, or a value that cannot be; the message names `file:line:` and key, and the remedy.

    To the shell it is wrong usage: exit code 64."""


class ClusterError(Exception):
    """A cluster did not come to what was asked of it in time; the message names what was awaited and what was seen."""
