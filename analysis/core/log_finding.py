"""A contradiction in a partition, in numbers: `decide` finds it, `explain` puts it into words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LogFinding:
    """One kind of contradiction in a partition, with what identifies its witness.

    `offsets`, `values`: where and which; `inv`, `ret`: the release and deadline that contradict each other; `kinds`:
    the kind of operation (APPENDS or QUERIES) of each, or -1 for either; `process`: of a query that contradicts itself;
    `session`: the client's (process << 32 | session). `also`: further values for which the same is true, at most
    LISTED.
    """

    name: str
    rule: str
    count: int
    offsets: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    inv: int = -1
    ret: int = -1
    kinds: tuple[int, int] = (-1, -1)
    process: int = -1
    session: int = -1
    also: tuple[int, ...] = ()
