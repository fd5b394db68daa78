"""Whether code that determines published runs has changed since they were made.

The code of a run is what its algorithm, its game and its measurements can import of this package, found from the
sources without running them; what only keeps records, checks input or handles faults is left out, and so is the
configuration, which runs' keys are of. It is more than a run uses, so that "no" is sure and "yes" may be harmless.
Comments, docstrings and layout do not count where the earlier text is still to be had.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from repro.config.keys import SCHEMA, register_schemas
from repro.config.schema import ALGORITHMS
from repro.tracking.provenance import REPOSITORY

PACKAGE = "repro"
_NO_NUMBERS = (
    "repro.config", "repro.tracking", "repro.durable", "repro.errors", "repro.faults", "repro.suggestions",
)  # fmt: skip
_DIGITS = 12
_FEW = 4
"""Files that a line names."""


# -- sources ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """The package's sources, in a commit or on the disk.

    Attributes:
        ids: path from the repository's root -> git's id of the content.
        commit: None: on the disk.
    """

    ids: Mapping[str, str]
    commit: str | None

    def text(self, path: str) -> str:
        """The content of a file of this tree."""
        if self.commit is None:
            return (REPOSITORY / path).read_text()
        content = content_of(self.ids[path])
        if content is None:
            raise LookupError(f"{path} of commit {self.commit} is not in this history")
        return content

    def path_of(self, module: str) -> str | None:
        """Where a module is; None if it is none of the package."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self.ids), None)


def on_disk() -> Tree:
    """The sources as they are now."""
    paths = sorted((REPOSITORY / PACKAGE).rglob("*.py"))
    return Tree({str(path.relative_to(REPOSITORY)): _id(path.read_bytes()) for path in paths}, None)


@cache
def of_commit(commit: str) -> Tree | None:
    """The sources in a commit; None if this history does not have it."""
    listed = _git("ls-tree", "-r", commit, "--", f"{PACKAGE}/")
    if not listed:
        return None
    entries = (line.split(None, 3) for line in listed.splitlines())
    return Tree({path: id_[:_DIGITS] for _, _, id_, path in entries if path.endswith(".py")}, commit)


def head() -> str | None:
    """The commit that is checked out; None outside of a repository."""
    commit = _git("rev-parse", "HEAD")
    return commit.strip() if commit else None


@cache
def content_of(id_: str) -> str | None:
    """What a file with this id holds; None if this history does not have it."""
    return _git("cat-file", "blob", id_)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _id(content: bytes) -> str:
    """Git's id of a file's content, so that it can be found in a history."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()[:_DIGITS]


# -- what a run can import -------------------------------------------------------------------------------------------


def closure(tree: Tree, modules: Sequence[str]) -> set[str]:
    """The files that modules import, directly or not, theirs among them; without those that determine no number."""
    waiting, found = list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        path = tree.path_of(module)
        if path is None or path in found or module.startswith(_NO_NUMBERS):
            continue
        found.add(path)
        waiting += _imported(tree.text(path))
    return found


@cache
def _imported(text: str) -> frozenset[str]:
    """The names of modules of the package that a file imports, and of what might be modules."""
    names = set[str]()
    for node in _executed(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in names if name.split(".")[0] == PACKAGE)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All that is run of a file: what is for type checkers only is not."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def modules_of(sweep: Mapping[str, Any]) -> list[str]:
    """Where the code of a sweep's runs begins: the modules of its algorithm, game and measurements.

    Args:
        sweep: one of a `provenance.json`.

    Raises:
        LookupError: its algorithm is not of this suite any more.
    """
    register_schemas()
    algorithm = sweep["config"]["algorithm"]
    own = ALGORITHMS[algorithm.get(SCHEMA) or _schema(algorithm["name"])].__module__
    # Subgames are measured by what trains on them.
    return [own] if own.startswith("repro.subgames") else [own, "repro.games.registry", "repro.evaluation.measures"]


@cache
def _schema(name: str) -> str:
    """The registered name of an algorithm, of which earlier provenance has only the label: that of its file in conf."""
    file = REPOSITORY / "conf" / "algorithm" / f"{name}.yaml"
    if not file.is_file():
        raise LookupError(f"the algorithm {name} is not of this suite any more")
    loaded: Any = OmegaConf.load(file)
    parents = [entry for entry in loaded.get("defaults", []) if isinstance(entry, str)]
    return next(p.removeprefix("schema_") if p.startswith("schema_") else _schema(p) for p in parents)


# -- then and now ----------------------------------------------------------------------------------------------------


def sources(sweep: Mapping[str, Any]) -> dict[str, str] | None:
    """What provenance keeps: path -> ids of the content of each file that determines a sweep's runs.

    Where runs were made by several commits, all ids. None where what they were made with is not in this history.
    """
    trees = [of_commit(commit) for commit in commits(sweep)]
    if not trees or None in trees or _is_dirty(sweep):
        return None
    own = [(tree, closure(tree, modules_of(sweep))) for tree in trees if tree is not None]
    ids = {path: {tree.ids[path] for tree, files in own if path in files} for path in set.union(*(f for _, f in own))}
    return {path: ", ".join(sorted(ids[path])) for path in sorted(ids)}


def commits(sweep: Mapping[str, Any]) -> list[str]:
    """The commits that trained and measured a sweep's runs."""
    named = [*sweep.get("git_commit", []), *sweep.get("evaluated_with", [])]
    return sorted({one for each in named for one in each.split(", ")})


def _is_dirty(sweep: Mapping[str, Any]) -> bool:
    """Whether runs were made or measured with files that are in no commit."""
    return "true" in sweep.get("git_dirty", []) or any(commit.endswith("-dirty") for commit in commits(sweep))


@dataclass(frozen=True)
class Staleness:
    """Whether code has changed.

    Attributes:
        changed: the files that have; None if nobody knows.
        files: how many determine the runs today.
        why: nobody knows.
    """

    changed: Sequence[str] | None
    files: int = 0
    why: str = ""

    @property
    def word(self) -> str:
        """Yes, no or unknown."""
        return "unknown" if self.changed is None else "yes" if self.changed else "no"

    def __str__(self) -> str:
        if self.changed is None:
            return f"**unknown**: {self.why}"
        if not self.changed:
            return f"**no** (none of {self.files} files)"
        more = f" and {len(self.changed) - _FEW} more" if len(self.changed) > _FEW else ""
        return f"**yes** ({len(self.changed)} of {self.files} files: {', '.join(self.changed[:_FEW])}{more})"


def staleness(sweep: Mapping[str, Any], tree: Tree) -> Staleness:
    """Whether code that determines a sweep's runs is another in a tree than when they were made.

    Args:
        sweep: one of a `provenance.json`, with `sources` or with commits that this history has.
    """
    try:
        modules = modules_of(sweep)
    except LookupError as error:
        return Staleness(None, why=str(error.args[0]))
    before = sweep.get("sources")
    then = [{p: ids.split(", ") for p, ids in before.items()}] if before else []
    if not before:
        if _is_dirty(sweep):
            return Staleness(None, why="the runs were made with uncommitted changes")
        for commit in commits(sweep):
            found = of_commit(commit)
            if found is None:
                return Staleness(None, why=f"commit {commit[:_DIGITS]} is not in this history")
            then.append({path: [id_] for path, id_ in found.ids.items()})
    files = sorted(closure(tree, modules))
    changed = [path for path in files if not all(_is_alike(tree, path, ids.get(path, [])) for ids in then)]
    return Staleness(changed, len(files))


def _is_alike(tree: Tree, path: str, ids: Sequence[str]) -> bool:
    """Whether a file is what it was, in each of these versions of it."""
    return bool(ids) and all(id_ == tree.ids[path] or _says_the_same(id_, tree.text(path)) for id_ in ids)


def _says_the_same(id_: str, text: str) -> bool:
    before = content_of(id_)
    return before is not None and _meaning(before) == _meaning(text)


@cache
def _meaning(text: str) -> str:
    """A file's code, without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# -- on pages --------------------------------------------------------------------------------------------------------

LINE = "Code that these runs can reach has changed since:"


def line(sweep: Mapping[str, Any]) -> str:
    """What a page says of a sweep, as of the commit that is checked out, so that it can be computed again."""
    commit = head()
    tree = of_commit(commit) if commit else None
    if commit is None or tree is None:
        return f"{LINE} **unknown**: there was no history when this was written."
    return f"{LINE} {staleness(sweep, tree)}, as of commit {commit[:_DIGITS]}."


def results() -> list[Path]:
    """The folders of all that is published."""
    return sorted(path.parent for path in (REPOSITORY / "paper_figures" / "results").glob("*/provenance.json"))
