"""A file of properties: its lines, and how single values are read. Whatever is refused, the message says what to do."""

from __future__ import annotations

from broker.errors import StartupError

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


def parse_properties(text: str, source: str) -> dict[str, str]:
    """`key=value` lines; `#` starts a comment line. Raises `StartupError` with the line's number."""
    result: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise StartupError(f"{source}:{number}: {stripped!r} is not of the form key=value")
        if key.strip() in result:
            raise StartupError(f"{source}:{number}: {key.strip()} is given twice; keep one of the lines")
        result[key.strip()] = value.strip()
    return result


def is_number(text: str, most: int) -> bool:
    """Whether it is a whole number from 0 to `most`. Numbers of absurd length are not worked out."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def is_port(text: str) -> bool:
    return is_number(text, 65535) and int(text) > 0


def shown(text: str) -> str:
    """What was written, for a message: quoted, and not longer than a line bears."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def take(properties: dict[str, str], source: str, key: str) -> str:
    """Remove a value that has to be there, and return it. Raises `StartupError`."""
    try:
        return properties.pop(key)
    except KeyError:
        raise StartupError(f"{source}: {key} is missing; add a line {key}=...") from None


def boolean(source: str, key: str, text: str) -> bool:
    """`true` or `false`. Raises `StartupError`."""
    if text not in ("true", "false"):
        raise StartupError(f"{source}: {key}: {shown(text)} is neither true nor false")
    return text == "true"


def integer(source: str, key: str, text: str, minimum: int | None) -> int:
    """A whole number of 64 bits that is not below `minimum`. Raises `StartupError`."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise StartupError(f"{source}: {key}: {shown(text)} is not a whole number")
    if not is_number(digits, MAX_INT64):
        raise StartupError(f"{source}: {key}: {shown(text)} does not fit into 64 bits")
    value = int(text)
    if minimum is not None and value < minimum:
        raise StartupError(f"{source}: {key}: {value} is smaller than {minimum}, the least that makes sense")
    return value
