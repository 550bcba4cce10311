"""Builds the source text of a function: used by the compilers of encoders and decoders."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    """The body of one generated function, with the names it refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._variables = 0

    def line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block after `head`; the caller writes at least one line into it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self) -> str:
        self._variables += 1
        return f"x{self._variables}"

    def constant(self, value: Any) -> str:
        """A name by which the code refers to a value."""
        name = f"K{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, code: str) -> str:
        return self._struct("pack_", code, struct.Struct(">" + code).pack)

    def unpacker(self, code: str) -> str:
        return self._struct("unpack_", code, struct.Struct(">" + code).unpack_from)

    def _struct(self, prefix: str, code: str, method: Callable[..., Any]) -> str:
        name = prefix + code.replace("?", "bool")
        return str(self.names.setdefault(name, method) and name)

    def function(self, signature: str, title: str) -> Callable[..., Any]:
        """Compile `def f<signature>` with the lines written so far."""
        text = f"def f{signature}:\n" + "\n".join(self._lines) + "\n"
        exec(compile(text, f"<{title}>", "exec"), self.names)
        function: Callable[..., Any] = self.names["f"]
        return function
