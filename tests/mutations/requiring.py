"""The requirements for every verdict on a mutated run."""

from tests.mutations.bench import Bench
from tests.mutations.mutation import Mutation


def require_honesty(bench: Bench, mutation: Mutation) -> None:
    """Sealed with the change in it: its own evidence must reveal the change."""
    found = bench.resealed(mutation)
    message = f"{mutation}\n  wanted {' / '.join(map(str, mutation.wants))}\n  got {found}"
    assert any(want.met_by(found) for want in mutation.wants), message
    assert found.stored in (None, found.verdict), f"{message}\n  but verdict.json says {found.stored}"
