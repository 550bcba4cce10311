"""Runs cleanup steps without losing the reason for the cleanup.

Every chain of cleanup steps runs through this module, so that the same rules hold everywhere:
- each step is tried, even if earlier steps failed;
- the cause (the exception that made the cleanup necessary) is what is raised. An error of a step becomes a note of it
  (`add_note`). Without a cause the first error of a step is raised, with the others as notes;
- Ctrl-C wins: an interrupt during a step is raised once all steps are done, in place of an error. The interrupted step
  is run again, since it may have stopped halfway. Steps can therefore run twice.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Step = Callable[[], object]
Shield = Callable[[], contextlib.AbstractContextManager[Any]]


def clean_up(*steps: Step, cause: BaseException | None = None) -> None:
    """Run all steps. With a `cause`, only an interrupt is raised, and failures become notes of the cause; otherwise the
    first failure is raised."""
    failures, interrupt = _run(steps)
    if interrupt is not None and not isinstance(cause, KeyboardInterrupt):
        _note(interrupt, failures)
        raise interrupt from cause
    if cause is not None:
        _note(cause, failures)
    elif failures:
        first, *others = failures
        _note(first, others)
        raise first


@contextlib.contextmanager
def always(*steps: Step, shield: Shield = contextlib.nullcontext) -> Iterator[None]:
    """Run all steps after the body, however it ends. They run within `shield`, if one is given."""
    try:
        yield
    except BaseException as cause:
        _shielded(steps, shield, cause)
        raise
    _shielded(steps, shield, None)


@contextlib.contextmanager
def on_failure(*steps: Step) -> Iterator[None]:
    """Run all steps if the body raises anything, including an interrupt."""
    try:
        yield
    except BaseException as cause:
        clean_up(*steps, cause=cause)
        raise


def described(error: BaseException) -> str:
    """An error's message with its notes, for the user."""
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])


def _shielded(steps: tuple[Step, ...], shield: Shield, cause: BaseException | None) -> None:
    try:
        with shield():
            clean_up(*steps, cause=cause)
    except KeyboardInterrupt as interrupt:  # raised at the end of the shield
        raise interrupt from cause


def _run(steps: tuple[Step, ...]) -> tuple[list[Exception], KeyboardInterrupt | None]:
    failures: list[Exception] = []
    interrupt: KeyboardInterrupt | None = None
    for step in steps:
        for _ in range(2):
            try:
                step()
            except KeyboardInterrupt as error:
                interrupt = interrupt or error
                continue
            except Exception as error:
                failures.append(error)
            break
    return failures, interrupt


def _note(error: BaseException, failures: list[Exception]) -> None:
    for failure in failures:
        error.add_note(f"cleaning up failed: {described(failure)}")
