"""Whether code that determines published runs has changed since they were made.

The code of a run is what its algorithm, its game, its training loop and its measurements can import of this package,
found from the sources without running them; modules that only keep records, check input or handle faults are left out.
Comments, docstrings, the order of imports and where a file lies are no code. A "yes" may still be harmless, a message
for example. A "no" does not cover what is outside of these files: the configuration in `conf/` and `repro.config` (a
run's settings are compared on their own), and the versions of packages.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from repro.config.keys import SCHEMA, register_schemas
from repro.config.schema import ALGORITHMS, Config
from repro.tracking import provenance
from repro.tracking.record import RunRecord
from repro.tracking.repetition import Repetition

PACKAGE = "repro"
_EVERY_RUN = ("repro.running.one_run", "repro.running.training", "repro.running.measuring")
_NO_NUMBERS = (
    "repro.config", "repro.tracking", "repro.common.durable", "repro.common.errors", "repro.common.faults",
    "repro.common.importing", "repro.common.stopping", "repro.common.suggestions", "repro.plans.naming",
    "repro.running.lifetimes", "repro.stored.leftovers",
    # As they lay before the packages of today.
    "repro.durable", "repro.errors", "repro.faults", "repro.folders", "repro.leftovers", "repro.suggestions",
)  # fmt: skip
_EVERY_RUN_BEFORE = ("repro.training", "repro.measuring")
"""What `_EVERY_RUN` was called in earlier commits; where there are none of these names they stand for nothing."""
_DIGITS = 12
_FEW = 4
"""Files that a line names."""


# -- what a commit holds -----------------------------------------------------------------------------------------------


def text_of(path: str, commit: str | None) -> str | None:
    """What a file of the package holds in a commit, or on the disk; None if it is not there."""
    if commit is not None:
        blob = _blobs(commit).get(path)
        return None if blob is None else _text(blob)
    file = provenance.REPOSITORY / path
    return file.read_text() if file.is_file() else None


@cache
def _blobs(commit: str) -> dict[str, str]:
    """The package's files in a commit, by their paths, and which contents git has of them: most are of many commits."""
    listed = provenance.git("ls-tree", "-r", "-z", "--full-tree", commit, f"{PACKAGE}/") or ""
    parts = (line.split("\t", 1) for line in listed.split("\0") if line)
    return {path: about.split()[2] for about, path in parts}


@cache
def _text(blob: str) -> str | None:
    return provenance.git("cat-file", "blob", blob)


def changed_files(then: str, now: str | None, among: Container[str]) -> set[str] | None:
    """Which of these files have other code in two commits, or in a commit and on the disk; None: unknown commits.

    A file that was moved is compared with what it was, and modules are the ones that they were where they are now. Of
    one that was split, the parts are changed.
    """
    listed = provenance.git(
        "diff", "--name-status", "--find-renames", "-z", then, *([now] if now else []), "--", f"{PACKAGE}/"
    )
    if listed is None:
        return None
    differing = list(_differing(listed))
    was = {path: old for old, path in differing if path in among}
    moved = tuple(sorted((_module(old), _module(path)) for old, path in differing if old != path))
    return {path for path, old in was.items() if _code(text_of(old, then), moved) != _code(text_of(path, now))}


def _differing(listed: str) -> Iterator[tuple[str, str]]:
    """The paths of files that `git diff --name-status -z` names, then and now."""
    words = iter(listed.split("\0")[:-1])
    for status in words:
        old = next(words)
        yield old, next(words) if status.startswith(("R", "C")) else old


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _code(text: str | None, moved: tuple[tuple[str, str], ...] = ()) -> str:
    """What a file does, as a text: without comments, docstrings, layout and the order of imports; none does nothing.

    Args:
        moved: modules that have other names now, and these.
    """
    try:
        stripped = _Stripped(dict(moved))
        rest = ast.dump(stripped.visit(ast.parse(text or "")))
    except SyntaxError:  # Half an edit.
        return text or ""
    return "\n".join([*sorted(stripped.imported), rest])


class _Stripped(ast.NodeTransformer):
    """Takes docstrings and imports out of a file, and keeps what is imported."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved, self.imported = moved, set[str]()

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else ast.Expr(self.visit(node.value))

    def visit_Import(self, node: ast.Import) -> None:
        self.imported |= {f"{self._now(alias.name)} as {alias.asname or 'named'}" for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = "." * node.level + (node.module or "")
        self.imported |= {f"{self._now(f'{above}.{a.name}')} as {a.asname or a.name}" for a in node.names}

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """A module's name in quotes, as for `python -m`, moves with it."""
        return ast.Constant(self._moved.get(node.value, node.value)) if isinstance(node.value, str) else node

    def _now(self, name: str) -> str:
        """What a name, of a module or in one, is called now."""
        module, _, within = name.rpartition(".")
        return self._moved.get(name) or (f"{self._moved[module]}.{within}" if module in self._moved else name)


# -- what a run can import -------------------------------------------------------------------------------------------


def closure(modules: Sequence[str], commit: str | None = None) -> set[str]:
    """The files that modules import, directly or not, theirs among them; without those that determine no number.

    Args:
        commit: the sources of which; None: those on the disk.
    """
    waiting, seen, found = list(modules), set[str](), set[str]()
    while waiting:
        module = waiting.pop()
        if module in seen or module.startswith(_NO_NUMBERS):
            continue
        seen.add(module)
        stem = module.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            text = text_of(path, commit)
            if text is not None:
                found.add(path)
                waiting += _imported(text)
                break
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
    """Where the code of a sweep's runs begins: the modules of its algorithm, game, training and measurements.

    Args:
        sweep: one of a `provenance.json`.

    Raises:
        LookupError: its algorithm is not of this suite, or not any more, or its game is not.
    """
    register_schemas()
    algorithm, game = sweep["config"]["algorithm"], sweep["config"].get("game", {})
    own = ALGORITHMS[algorithm.get(SCHEMA) or _schema(algorithm["name"])].__module__
    for module in (own, game.get("module") or PACKAGE):
        if module.partition(".")[0] != PACKAGE:
            raise LookupError(f"code outside of this package, such as {module}, is not looked at")
    # Subgames are measured by what trains on them.
    measured = [] if own.startswith("repro.subgames") else ["repro.games.registry", "repro.evaluation.measures"]
    return [own, *_EVERY_RUN, *measured]


@cache
def _schema(name: str) -> str:
    """The registered name of an algorithm, of which earlier provenance has only the label: that of its file in conf."""
    file = provenance.REPOSITORY / "conf" / "algorithm" / f"{name}.yaml"
    if not file.is_file():
        raise LookupError(f"the algorithm {name} is not of this suite any more")
    loaded: Any = OmegaConf.load(file)
    parents = [entry for entry in loaded.get("defaults", []) if isinstance(entry, str)]
    own = next((parent for parent in parents if parent.startswith("schema_")), None)
    if own is None:
        raise LookupError(f"conf/algorithm/{name}.yaml names no schema")
    return own.removeprefix("schema_")


# -- then and now ----------------------------------------------------------------------------------------------------


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
        files: how many the runs can reach today.
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
            return f"unknown: {self.why}"
        if not self.changed:
            return f"no (none of {self.files} files)"
        more = f" and {len(self.changed) - _FEW} more" if len(self.changed) > _FEW else ""
        return f"yes ({len(self.changed)} of {self.files} files: {', '.join(self.changed[:_FEW])}{more})"


def staleness(sweep: Mapping[str, Any], now: str | None = None) -> Staleness:
    """Whether code that a sweep's runs can reach is another than when they were made.

    Args:
        sweep: one of a `provenance.json`.
        now: the commit to compare with; None: the files on the disk.
    """
    if _is_dirty(sweep):
        return Staleness(None, why="the runs were made with uncommitted changes")
    try:
        files = closure([*modules_of(sweep), *_EVERY_RUN_BEFORE], now)
    except LookupError as error:
        return Staleness(None, why=str(error.args[0]))
    made = commits(sweep)
    if not made:
        return Staleness(None, why="no commit is recorded")
    changed = set[str]()
    for commit in made:
        found = changed_files(commit, now, files)
        if found is None:
            return Staleness(None, why=f"commit {commit[:_DIGITS]} is not in this history")
        changed |= found
    return Staleness(sorted(changed), len(files))


# -- finished runs ---------------------------------------------------------------------------------------------------


def made_at(trainings: Iterable[tuple[Config, RunRecord]]) -> list[str]:
    """Of each finished training, at which commit it was made, and whether code that determines it has changed since.

    Seconds for all together: what trainings share is looked at once.
    """
    answers: dict[str, str] = {}
    told = []
    for config, record in trainings:
        algorithm = {SCHEMA: next(n for n, schema in ALGORITHMS.items() if type(config.algorithm) is schema)}
        sweep: dict[str, Any] = {key: record.made_with.get(key, []) for key in ("git_commit", "git_dirty")}
        sweep["config"] = {"algorithm": algorithm, "game": {"module": config.game.get("module")}}
        key = json.dumps(sweep, sort_keys=True)
        if key not in answers:
            answers[key] = _made_at(sweep)
        told.append(answers[key])
    return told


def _made_at(sweep: Mapping[str, Any]) -> str:
    at = ", ".join(commit[:_DIGITS] for commit in commits(sweep)) or "unknown"
    found = staleness(sweep)
    if found.changed is None:
        return f"made at commit {at}; whether code has changed since is unknown: {found.why}"
    if not found.changed:
        return f"made at commit {at}"
    changed = str(found).partition(" ")[2]
    return f"made at commit {at}; code that determines it has changed since {changed}"


# -- on pages --------------------------------------------------------------------------------------------------------

LINE = "Code that these runs can reach has changed since:"


def line(sweep: Mapping[str, Any], now: str | None = None) -> str:
    """What a page says of a sweep, as of a commit, without which it is the one that is checked out."""
    commit = now or provenance.head()
    if commit is None:
        return f"{LINE} **unknown** (there was no history when this was written)."
    word = staleness(sweep, commit).word
    return f"{LINE} **{word}**, as of commit {commit[:_DIGITS]}.{since_repeated(sweep, commit)}"


def since_repeated(sweep: Mapping[str, Any], now: str | None = None) -> str:
    """A sentence on the repetition of a sweep's runs, and on the code since then; empty if they were not repeated."""
    repetition = Repetition.kept(sweep)
    if repetition is None:
        return ""
    then = staleness({"config": sweep["config"], "git_commit": [repetition.commit]}, now)
    until = "today" if now is None else f"{now[:_DIGITS]}"
    answer = then.word if then.changed is not None else f"{then.word} ({then.why})"
    return f" Their beginning was {repetition}; code has changed from there to {until}: {answer}."


def results() -> list[Path]:
    """The folders of all that is published."""
    return sorted(
        path.parent for path in (provenance.REPOSITORY / "paper_figures" / "results").glob("*/provenance.json")
    )
