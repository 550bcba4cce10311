"""Makes tests of coroutine functions.

The parameters before `/` come from the function that plays the test; the parameters after it are fixtures and
parametrized values, which pytest supplies by name.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


def played_by(
    player: Callable[..., object], *fixtures: str, passed: tuple[str, ...] = (), **settings: Any
) -> Callable[[Test], Callable[..., None]]:
    """The test is the story of `player(*fixtures, story, **settings)`; `fixtures` are names of pytest's fixtures.
    `passed`: names of parametrized values that the player gets as settings."""

    def play(story: Test, values: list[Any]) -> None:
        own = dict(zip(reversed(passed), reversed(values), strict=False))
        player(*values[: len(fixtures)], story, **settings, **own)

    return _test(play, (*fixtures, *passed))


def run_by(runner: Callable[[Coroutine[Any, Any, None]], object]) -> Callable[[Test], Callable[..., None]]:
    """The test is the coroutine of `runner(coroutine)`, as of `asyncio.run`."""
    return _test(lambda story, _values: runner(story()), ())


def _test(
    play: Callable[[Test, list[Any]], object], fixtures: tuple[str, ...]
) -> Callable[[Test], Callable[..., None]]:
    def decorator(test: Test) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters.values()
        supplied = [it for it in parameters if it.kind is not inspect.Parameter.POSITIONAL_ONLY]
        names = [it.name for it in supplied]

        @functools.wraps(test)
        def plain(**values: Any) -> None:
            play(functools.partial(test, **{name: values[name] for name in names}), [values[name] for name in fixtures])

        extra = [inspect.Parameter(it, inspect.Parameter.KEYWORD_ONLY) for it in fixtures if it not in names]
        keywords = [it.replace(kind=inspect.Parameter.KEYWORD_ONLY) for it in supplied]
        plain.__signature__ = inspect.Signature([*keywords, *extra])  # type: ignore[attr-defined]
        return plain

    return decorator
