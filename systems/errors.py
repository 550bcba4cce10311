"""What a user wrote that cannot be acted on."""

from __future__ import annotations


class InputError(Exception):
    """A file that is not understood, or a value that cannot be; the message names `file:line:` and key, and the remedy.

    To the shell it is wrong usage: exit code 64."""
