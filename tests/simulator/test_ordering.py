"""Iteration over a set with an order outside of the seed fails at that line; code independent of the order runs."""

import pytest

from simulator.determinism import NondeterminismError
from simulator.set_order import CHECK, checked_code, in_seeded_order, install

NAMES = frozenset({"b", "a"})


def run(statement: str, **given: object) -> dict[str, object]:
    """What a module of this one statement leaves."""
    namespace: dict[str, object] = {CHECK: in_seeded_order, "names": NAMES, **given}
    exec(checked_code(statement, "some/module.py"), namespace)
    return namespace


@pytest.mark.parametrize(
    "statement",
    [
        "for name in names: pass",
        "found = [name for name in names]",
        "found = {name: 1 for name in names}",
        "found = next(iter(names))",
        "found = list(names)",
        "found = [*names]",
        "found = print(*names)",
        "found = ','.join(names)",
        "found = dict.fromkeys(names)",
        "found = list(enumerate(names))",
        "found = list(name for name in names)",
        "found = max(*names)",
        "found = set(names).pop()",
        "async def later():\n  return [name for name in names]\nlater().send(None)",
        "names = {('log', 0), ('log', 1)}\nfound = list(names)",
        "names = {None, 1}\nfound = list(names)",
    ],
)
def test_a_set_is_not_iterated_over_in_its_own_order(statement: str) -> None:
    with pytest.raises(NondeterminismError, match=r"some/module.py:\d iterates over a set"):
        run(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "found = sorted(names)",
        "for name in sorted(names): pass",
        "found = {name.upper() for name in names}",
        "found = {*names, 'c'}",
        "found = any(name == 'a' for name in names)",
        "found = sum(len(name) for name in names), min(names), len(names), set(names), 'a' in names",
        "found = names | {'c'}, names & {'a'}",
        "for name in ['b', 'a']: pass",
        "for name in {'b': 1, 'a': 2}: pass",
        "for name in {'only one'}: pass",
        "for number in {3, 1, 2}: pass",
        "found = [pair for pair in {(1, 2), (0, 1)}]",
        "first, *rest = ['a', 'b']",
    ],
)
def test_code_independent_of_set_order_is_allowed(statement: str) -> None:
    run(statement)


def test_install_refuses_modules_that_are_already_imported() -> None:
    import broker  # noqa: F401 - it is imported

    with pytest.raises(RuntimeError, match="install this before"):
        install()
