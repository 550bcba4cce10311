"""Passwords that a broker reads from files. They are never shown: not in messages, nor by `repr`.

The file has one `name=password` per line. Empty lines and lines that start with `#` are ignored. Only the owner may
have permission to read the file.
"""

import hmac
import os
import stat
from pathlib import Path

from broker.errors import StartupError


class Password:
    """A password that can be compared and used, but not shown by mistake."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Password(...)"

    def reveal(self) -> bytes:
        """The bytes of the password, for immediate use."""
        return self._text.encode()

    def is_(self, other: str) -> bool:
        """Whether `other` is the password, in constant time: the duration does not depend on how much is right."""
        return hmac.compare_digest(self._text.encode(), other.encode())


def read_passwords(path: str, key: str, source: str) -> dict[str, Password]:
    """The users in a file that the configuration names under `key`. Raises `StartupError`, which quotes no line."""
    place = f"{source}: {key}: {path}"
    require_private(path, key, source)
    passwords: dict[str, Password] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"{place}: cannot be read: {type(error).__name__}; give a file of UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, password = line.partition("=")
        if not (separator and name.strip() and password):
            raise StartupError(f"{place}: line {number} is not of the form name=password")
        if name.strip() in passwords:
            raise StartupError(f"{place}: line {number}: the user is named twice; keep one of the lines")
        passwords[name.strip()] = Password(password)
    return passwords


def require_private(path: str, key: str, source: str) -> None:
    """Raises `StartupError` for a file that is unreadable, or that other users can read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise StartupError(f"{source}: {key}: {path} cannot be read: {error.strerror}; name a readable file") from error
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise StartupError(f"{source}: {key}: other users can read {path}; run chmod 600 {path}")
