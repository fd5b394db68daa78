"""The packages of `repro` stand on each other in one order: none imports, at any time, from one above it.

`config` looks the modules up that declare schemas, by their names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    "common", "games", "config", "networks", "policies", "engine", "abstraction", "evaluation", "algorithms",
    "interop", "tracking", "subgames", "stored", "plans", "figures", "shown", "running", "jobs", "estimates",
    "comparing", "inside", "tuning", "report", "bench",
)  # fmt: skip
"""From the bottom to the top; above them are the commands, modules of `repro` itself."""


def imported(node: ast.AST) -> Iterator[str]:
    """Whatever a file imports, at its head or later; what is for type checkers only is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are absolute here"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imported(child)


def of_repro(file: Path) -> set[str]:
    """The packages of `repro`, and its commands, that a file imports from."""
    names = (name.split(".") for name in imported(ast.parse(file.read_text())))
    return {name[1] for name in names if name[0] == "repro" and len(name) > 1}


def test_every_package_has_its_place():
    packages = {path.parent.name for path in (ROOT / "repro").glob("*/__init__.py")}
    assert packages == set(LAYERS)


@pytest.mark.parametrize("package", LAYERS)
def test_a_package_imports_from_those_below_it(package):
    below = {*LAYERS[: LAYERS.index(package) + 1]}
    for file in (ROOT / "repro" / package).rglob("*.py"):
        assert not of_repro(file) - below, file


def test_the_package_looks_figures_up_by_their_names():
    """What is drawn stands on the package, not the other way round."""
    for file in (ROOT / "repro").rglob("*.py"):
        assert not [name for name in imported(ast.parse(file.read_text())) if name.startswith("paper_figures")], file


def test_commands_import_no_other_command():
    commands = {path.stem for path in (ROOT / "repro").glob("*.py")} - {"__init__"}
    for name in commands:
        assert not of_repro(ROOT / "repro" / f"{name}.py") & (commands - {name}), name


def test_the_order_is_what_the_documentation_says():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `repro/(\w+)/` \|", text, flags=re.MULTILINE)
    assert rows == list(LAYERS)
