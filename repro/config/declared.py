"""Schemas as the sources declare them, read without importing these, which takes seconds; and an early check by them.

Algorithms and evaluations declare their keys beside what trains and measures, in modules that import torch and Numba. A
misspelt key needs none of that: here their dataclasses are rebuilt from the text of the files, fields alone. Ranges and
most defaults are left out, and whatever else may be wrong, too, is for `repro.plans.planning`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from hydra import compose, initialize_config_dir
from hydra.errors import MissingConfigException
from omegaconf import MISSING
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from repro.common.errors import ReproError
from repro.config import schema
from repro.config.composed import CONF, check_choices, check_keys, one_sentence
from repro.config.jobs import jobs_of

_FOLDERS = [Path(__file__).resolve().parents[1] / name for name in ("algorithms", "evaluation", "subgames")]
"""Of the modules that register schemas."""
_UNKNOWN = (MissingConfigException, ConfigAttributeError, ConfigKeyError)
"""What Hydra and OmegaConf raise for a choice or a key that there is not."""
_REGISTER = {"register_algorithm": schema.register_algorithm, "register_evaluation": schema.register_evaluation}


@dataclass(frozen=True)
class Declared:
    """What sources declare.

    Attributes:
        registered: for each function that registers, the name of each schema and that of its class.
        classes: by name, the dataclasses.
    """

    registered: Mapping[str, Mapping[str, str]]
    classes: Mapping[str, ast.ClassDef]

    def schema(self, name: str) -> type:
        """The dataclass of that name, or one with the same keys if it is of these sources."""
        if name not in self.classes:
            return vars(schema)[name]
        declared = self.classes[name]
        bases = [b.id for b in declared.bases if isinstance(b, ast.Name)]
        own = [
            (statement.target.id, *self._typed(statement.annotation))
            for statement in declared.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            if not ast.unparse(statement.annotation).startswith("ClassVar")
        ]
        inherited = tuple(self.schema(base) for base in bases if base in self.classes or base in vars(schema))
        return make_dataclass(name, own, bases=inherited)

    def _typed(self, annotation: ast.expr) -> tuple[Any, Any]:
        """A field's type, and a default from which keys can be composed."""
        named = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        known = {name: self.schema(name) for name in named if name in self.classes or name in vars(schema)}
        kind = eval(ast.unparse(annotation), {}, known)
        made = next((part for part in (kind, *get_args(kind)) if is_dataclass(part)), get_origin(kind))
        has_keys = is_dataclass(made) or made in (dict, list)
        return kind, field(default_factory=made) if has_keys else field(default=MISSING)  # type: ignore[arg-type]


def declared() -> Declared:
    """What the modules of the package declare."""
    registered: dict[str, dict[str, str]] = {function: {} for function in _REGISTER}
    classes: dict[str, ast.ClassDef] = {}
    for path in (path for folder in _FOLDERS for path in sorted(folder.glob("*.py"))):
        text = path.read_text()
        if "\n@dataclass\n" not in text:
            continue
        for statement in ast.parse(text).body:
            if not isinstance(statement, ast.ClassDef):
                for function, pairs in registered.items():
                    pairs |= dict(_pairs(statement, function))
            elif any(ast.unparse(decorator) == "dataclass" for decorator in statement.decorator_list):
                classes[statement.name] = statement
    return Declared(registered, classes)


def _pairs(statement: ast.stmt, function: str) -> Iterator[tuple[str, str]]:
    """The name and the class of each schema that a statement registers: in a call, or in a loop over pairs."""
    nodes = list(ast.walk(statement))
    if isinstance(statement, ast.FunctionDef) or not any(isinstance(n, ast.Name) and n.id == function for n in nodes):
        return
    for node in nodes:
        match node:
            case ast.Call(args=[ast.Constant(value=str(name)), ast.Name(id=kind)]):
                yield name, kind
            case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Name(id=kind)]):
                yield name, kind


@contextmanager
def _registered() -> Iterator[None]:
    """Hydra and the registers have declared schemas in place of real ones, which take these places when imported."""
    found = declared()
    try:
        for function, pairs in found.registered.items():
            for name, kind in pairs.items():
                _REGISTER[function](name, found.schema(kind))
        yield
    finally:
        schema.ALGORITHMS.clear()
        schema.EVALUATIONS.clear()


def check_early(overrides: Sequence[str], multirun: bool) -> None:
    """Refuse keys and choices that there are not, of the first run, before the algorithms are imported.

    Raises:
        ReproError: in the words of `repro.plans.planning.plan`, which finds the same.
    """
    if schema.ALGORITHMS or schema.EVALUATIONS:  # Imported already.
        return
    try:
        with _registered(), initialize_config_dir(str(CONF), version_base="1.3"):
            _check_first(jobs_of(overrides, multirun)[0])
    except ReproError:
        raise
    except Exception:
        # Whatever else is wrong, here or with how sources declare schemas, `repro.plans.planning` will meet.
        return


def _check_first(job: list[str]) -> None:
    try:
        check_choices(job)
        check_keys(compose("config", job))
    except Exception as error:
        if any(isinstance(fault, _UNKNOWN) for fault in (error, error.__cause__)):
            raise ReproError(" ".join(one_sentence(error).split())) from error
        raise
