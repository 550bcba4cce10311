"""The requirements for every verdict on a mutated run."""

from __future__ import annotations

from tests.mutations.bench import Bench
from tests.mutations.mutation import Judgement, Mutation, Want


def require(mutation: Mutation, found: Judgement, wants: tuple[Want, ...]) -> None:
    message = f"{mutation}\n  wanted {' / '.join(map(str, wants))}\n  got {found}"
    assert any(want.met_by(found) for want in wants), message
    assert found.stored in (None, found.verdict), f"{message}\n  but verdict.json says {found.stored}"


def require_honesty(bench: Bench, mutation: Mutation) -> None:
    """Sealed with the change in it: its own evidence must reveal the change."""
    require(mutation, bench.resealed(mutation), mutation.resealed)


def require_that_the_seal_reveals(bench: Bench, mutation: Mutation) -> None:
    """It names a file that is not what it was, and nothing when none of the evidence has changed."""
    found, changed = bench.complaints(mutation)
    assert bool(found) == bool(changed)
    reported = any(name in each for name in [*changed, "not sealed"] for each in found)
    assert reported or not changed, (found, changed)
