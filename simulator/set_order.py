"""Raises when code iterates over a set in hash order, which no seed determines.

The order of a set follows from its elements' hashes; those of texts, of members of enumerations and of plain objects
differ from process to process. Different digests reveal that such a place exists, but not where. So modules can be
imported in a form that checks iteration: a loop, a list or a call gets a `NondeterminismError` with file and line for
such a set of more than one element. `sorted`, sets made of sets, `any`, `sum` and the like are exempt.

This costs every loop a call, so it is for tests: `install()` before anything of the packages is imported.
"""

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, Final, TypeVar

from simulator.determinism import NondeterminismError

PACKAGES: Final = ("broker", "simulator")
ANY_ORDER: Final = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
"""Calls whose result does not depend on their argument's order. (Of two elements with equal keys, `max` and `min` take
the first: a key must distinguish all elements.)"""
IN_ORDER: Final = frozenset({"deque", "dict", "enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip"})
METHODS_IN_ORDER: Final = frozenset({"extend", "fromkeys", "join", "writelines"})
CHECK: Final = "__in_seeded_order__"

T = TypeVar("T")
ComprehensionT = TypeVar("ComprehensionT", ast.ListComp, ast.DictComp, ast.GeneratorExp)


def install() -> None:
    """Import modules of `PACKAGES` in the checking form from now on. Raises `RuntimeError` if some are imported
    already: their iterations would not be checked."""
    early = [name for name in sys.modules if name.partition(".")[0] == "broker"]
    if early:
        raise RuntimeError(f"{early[0]} is imported already: install this before")
    sys.meta_path.insert(0, _Finder())


def in_seeded_order(collection: T, position: str) -> T:
    """Returns `collection`. Raises `NondeterminismError` for a set whose order differs from process to process."""
    if type(collection) in (set, frozenset) and len(collection) > 1 and not all(map(_is_seeded, collection)):  # type: ignore[arg-type,call-overload]
        raise NondeterminismError(f"{position} iterates over a set, in an order that no seed decides: sort it")
    return collection


def _is_seeded(element: object) -> bool:
    """Whether an element's hash is the same in every process."""
    if type(element) is tuple:
        return all(map(_is_seeded, element))
    return type(element) in (int, bool, float)


def checked_code(source: str | bytes, path: str, optimize: int = -1) -> CodeType:
    """A module's code in the checking form. It needs `in_seeded_order` under the name `CHECK`."""
    tree = _Loops(path).visit(ast.parse(source, path))
    code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=optimize)
    return code


class _Loops(ast.NodeTransformer):
    """Adds a check to everything that iterates in order."""

    def __init__(self, file: str) -> None:
        self._file = file

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = self._checked(node.iter)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def visit_Starred(self, node: ast.Starred) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._checked(node.value)
        return node

    def visit_Set(self, node: ast.Set) -> ast.AST:
        for element in node.elts:  # an iterable that is unpacked into a set may have any order
            self.generic_visit(element)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ANY_ORDER and node.args and isinstance(node.args[0], ast.GeneratorExp):
            self.generic_visit(node.args[0])
            return node
        self.generic_visit(node)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in IN_ORDER or method in METHODS_IN_ORDER:
            node.args = [part if isinstance(part, ast.Starred) else self._checked(part) for part in node.args]
        if isinstance(node.func, ast.Attribute) and method == "pop" and not node.args:
            node.func.value = self._checked(node.func.value)
        return node

    def _comprehension(self, node: ComprehensionT) -> ComprehensionT:
        self.generic_visit(node)
        for generator in node.generators:
            generator.iter = self._checked(generator.iter)
        return node

    def _checked(self, value: ast.expr) -> ast.expr:
        position = ast.Constant(f"{self._file}:{value.lineno}")
        call = ast.Call(ast.Name(CHECK, ast.Load()), [value, position], [])
        return ast.fix_missing_locations(ast.copy_location(call, value))


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module in the checking form, from its source only."""

    def get_code(self, fullname: str) -> CodeType:
        del fullname  # one loader, one module
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        return checked_code(data, str(path), _optimize)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, CHECK, in_seeded_order)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del target
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec
