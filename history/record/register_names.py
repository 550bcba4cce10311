"""The names of a run's registers, shared by the clients that use them and the checker that expects all of them."""


def key_name(number: int) -> str:
    """The name of a register (from 0) in operations and in the record."""
    return f"k{number}"
