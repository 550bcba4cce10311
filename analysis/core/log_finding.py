"""What is wrong with a partition, in numbers: `conclude` finds it, `explain` tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogFinding:
    """One kind of contradiction in a partition and what singles out its witness.

    `offsets`, `values`: where and which; `inv`, `ret`: the release and deadline that contradict each other, each with
    the kind of operation (APPENDS or QUERIES) it belongs to, or -1 when either may be; `process`: of a query that
    contradicts itself; `session`: the client's (process << 32 | session). `also`: further values of which the same is
    true, at most LISTED.
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
