"""Numbers with their nouns."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """The number and its noun, which has an `s` in the plural unless another plural is given."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
