"""Parses a file of properties and single values. Every error message says what to change."""

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
    """Whether the text is a whole number from 0 to `most`. Numbers of absurd length are not converted."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def is_port(text: str) -> bool:
    return is_number(text, 65535) and int(text) > 0


def shown(text: str) -> str:
    """A value from a file as a message shows it: quoted and shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def check_address(source: str, key: str, address: str) -> None:
    """Raises `StartupError` for an address of an object store that can have credentials in it. The message does not
    contain the address."""
    if not address.startswith("file:///") and ("@" in address or "?" in address):
        raise StartupError(
            f"{source}: {key}: an address has no '@' and no '?'; put credentials into the file that "
            "rsm.config.credentials.file names"
        )


def take(properties: dict[str, str], source: str, key: str) -> str:
    """Remove a required value and return it. Raises `StartupError`."""
    try:
        return properties.pop(key)
    except KeyError:
        raise StartupError(f"{source}: {key} is missing; add a line {key}=...") from None


def boolean(source: str, key: str, text: str) -> bool:
    """Parse `true` or `false`. Raises `StartupError`."""
    if text not in ("true", "false"):
        raise StartupError(f"{source}: {key}: {shown(text)} is neither true nor false")
    return text == "true"


def integer(source: str, key: str, text: str, minimum: int | None) -> int:
    """Parse a whole number of 64 bits that is at least `minimum`. Raises `StartupError`."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise StartupError(f"{source}: {key}: {shown(text)} is not a whole number")
    if not is_number(digits, MAX_INT64):
        raise StartupError(f"{source}: {key}: {shown(text)} does not fit into 64 bits")
    value = int(text)
    if minimum is not None and value < minimum:
        raise StartupError(f"{source}: {key}: {value} is smaller than {minimum}, the smallest allowed value")
    return value


def is_ratio(text: str) -> bool:
    """Whether the text is a number from 0 to 1, written with digits and a point."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    return len(text) <= 20 and digits.isascii() and digits.isdigit() and whole != "" and float(text) <= 1


def ratio(source: str, key: str, text: str) -> float:
    """Parse a number from 0 to 1. Raises `StartupError`."""
    if not is_ratio(text):
        raise StartupError(f"{source}: {key}: {shown(text)} is not a number from 0 to 1, such as 0.5")
    return float(text)
