"""The unique int64 that each append carries; `record_payload.py` makes Kafka records of them.

A value names its origin: session (15 bits), producer (16 bits), sequence (32 bits). Therefore no two appends of any
session share one, and a stray record shows its origin.
"""

from typing import Final, NamedTuple

SESSIONS: Final = 1 << 15
PRODUCERS: Final = 1 << 16
SEQUENCES: Final = 1 << 32
VALUE_BYTES: Final = 8
RECORD_STEP: Final = 0x9E3779B97F4A7C15
DERIVED: Final = "derived"
VALUE_FIRST: Final = "value-first"
RECORD_FORMS: Final = (DERIVED, VALUE_FIRST)
"""The form of a run's records: derived completely from their value (`record_bytes`), or its value in 8 bytes followed
by bytes that only the client knows."""
ANY_SEQUENCE: Final = "any"
FROM_ZERO: Final = "from-zero"
FIRST_SEQUENCES: Final = (ANY_SEQUENCE, FROM_ZERO)
"""What a system promises about a new producer's first sequence in a log: any is accepted, or only 0."""
NOT_A_VALUE: Final = -2
"""The recorded value of a record without one: too short, or with other bytes than its value yields."""
SESSION_SHIFT: Final = 48


class Value(NamedTuple):
    """The parts of an append's value."""

    session: int
    producer: int
    sequence: int


def encode_value(session: int, producer: int, sequence: int) -> int:
    """The int64 of an append. Raises ValueError when a part does not fit its bits."""
    for name, part, limit in (
        ("session", session, SESSIONS),
        ("producer", producer, PRODUCERS),
        ("sequence", sequence, SEQUENCES),
    ):
        if not 0 <= part < limit:
            raise ValueError(f"{name} {part} does not fit: it must be in 0 .. {limit - 1}")
    return session << SESSION_SHIFT | producer << 32 | sequence


def decode_value(value: int) -> Value:
    """The parts of an append's value. Raises ValueError for a negative number, which no append carries."""
    if value < 0:
        raise ValueError(f"{value} is not the value of an append")
    return Value(value >> SESSION_SHIFT, producer_of(value), value & (SEQUENCES - 1))


def producer_of(value: int) -> int:
    """The producer's bits of any int64."""
    return value >> 32 & (PRODUCERS - 1)
