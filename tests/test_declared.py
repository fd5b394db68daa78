"""Schemas read from sources have the keys of real ones, and what they refuse is refused in the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from repro.common.errors import ReproError
from repro.config.declared import declared
from repro.config.keys import register_schemas
from repro.config.schema import ALGORITHMS, EVALUATIONS
from repro.plans.planning import plan

UNKNOWN = [
    ["game=leduc", "algorithm=deep_cfr", "algorithm.travrsals=10"],
    ["++algorithm.value.stpes=5"],
    ["algorithm.average=null", "+algorithm.boads=3"],
    ["algorithm=d2cfr", "algorithm.kl_wieght=1"],
    ["algorithm=devn", "algorithm.solver.tolerence=1"],
    ["algorithm=cfr", "algorithm.xyz=1"],
    ["network.widht=10"],
    ["game.rnks=3"],
    ["trainer.devizes=2"],
    ["evaluation=match", "evaluation.match.oponents_at=last"],
    ["evaluation.exploitability.bords=3"],
    ["experiment=figure1", "scale=laptop", "algorithm.value.avraging=1"],
    ["experiment=figur1"],
    ["algorithm=deep_cf"],
    ["algorithm=base/mccfr"],
    ["-m", "algorithm=dcvn,devn", "algorithm.bukets=3,4"],
]
"""Command lines with a key or choice that there is not."""

TOLD_LATER = [
    ["algorithm.traversals=0"],
    ["algorithm.traversals=x"],
    ["algorithm.average.steps=5"],
    ["+game.rank=4"],
    ["seed='${sede}'"],
    ["-m", "seed=1,2", "hydra/launcher=joblib"],
    ["evaluation=[exploitability,match]", "+evaluation.match.opponents.other=0123456789ab"],
    ["+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}", "+logger.table={_target_: x.y}"],
    ["experiment=figure2", "scale=laptop"],
    *([f"algorithm={name}"] for name in ("d2cfr", "nfsp", "guided_deep_cfr", "kuhn_post", "es_mccfr", "cfr", "devn")),
    *([f"algorithm={name}"] for name in ("encoding_error", "solved_subgames", "reference_leaves")),
]
"""Command lines with another fault, or none."""


def keys_of(schema: type) -> Iterator[str]:
    """All keys, dotted, in their order."""
    hints = get_type_hints(schema)
    for each in fields(schema):
        yield each.name
        for part in (hints[each.name], *get_args(hints[each.name])):
            if is_dataclass(part) and isinstance(part, type):
                yield from (f"{each.name}.{key}" for key in keys_of(part))


def told_early(lines: Sequence[Sequence[str]]) -> list[str | None]:
    """What a new process says of each command line before it imports torch; None where it finds nothing."""
    code = """
import json, sys
from repro.config.declared import check_early
from repro.common.errors import ReproError
told = []
for line in json.loads(sys.argv[1]):
    told.append(None)
    try:
        check_early([word for word in line if word != "-m"], "-m" in line)
    except ReproError as error:
        told[-1] = str(error)
assert not {"torch", "numba", "pandas"} & set(sys.modules)
print(json.dumps(told))
"""
    done = subprocess.run([sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("function", "real"), [("register_algorithm", ALGORITHMS), ("register_evaluation", EVALUATIONS)]
)
def test_declared_schemas_have_the_keys_of_real_ones(function, real):
    register_schemas()
    found = declared()
    own = {name: schema for name, schema in real.items() if schema.__module__.startswith("repro.")}
    assert found.registered[function] == {name: schema.__name__ for name, schema in own.items()}
    for schema in own.values():
        assert list(keys_of(found.schema(schema.__name__))) == list(keys_of(schema))


@pytest.mark.exhaustive
def test_what_is_told_early_is_what_would_be_told_later():
    for line, early in zip(UNKNOWN, told_early(UNKNOWN), strict=True):
        with pytest.raises(ReproError) as caught:
            plan([word for word in line if word != "-m"], "-m" in line)
        assert early == str(caught.value)


@pytest.mark.exhaustive
def test_nothing_else_is_told_early():
    assert told_early(TOLD_LATER) == [None] * len(TOLD_LATER)
