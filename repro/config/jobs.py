"""From a command line to the overrides of each job that it asks for, without what is about launching them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from itertools import islice, product

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString, ValueType

from repro.common.errors import ReproError

MOST_RUNS = 10_000
"""That a command line can ask for."""

MOST_AT_ONCE = 1024
"""Runs that can be done at once."""

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./-]*")
_OF_A_RUN = re.compile(f"seed=(0|[1-9][0-9]*)|output_dir={_PLAIN_PATH.pattern}")
"""Keys that neither a game has defaults of nor any choice depends on, with one plain value."""
_VALUE = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+=[-+.\w]+")
"""A key that is no group, with one plain value."""
_A_LIST = "a list is one value, in brackets, such as [0,1]"


def check_single(overrides: Sequence[str]) -> None:
    """Check that every key is given one value, where there is no sweep.

    Raises:
        ReproError: one is given several.
    """
    for line in _swept(OverridesParser.create().parse_overrides(list(overrides))):
        raise ReproError(f"{line}: one value is taken here; {_A_LIST}.")


def _swept(parsed: Sequence[Override]) -> list[str]:
    return [str(override.input_line) for override in parsed if override.is_sweep_override()]


def jobs_of(overrides: Sequence[str], multirun: bool) -> list[list[str]]:
    """The overrides of each job, without what is about launching; of a key that is given twice the last counts.

    Raises:
        ReproError: several values are given where there is one job, or a sweep has none, or too many.
    """
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
    if not multirun:
        for line in _swept(parsed):
            raise ReproError(
                f"{line}: several values need -m, as in python -m repro.run -m {shlex.quote(line)}; {_A_LIST}."
            )
        return [[line for line in overrides if not is_about_launching(line)]]
    values: dict[str, list[str]] = {}
    for override in parsed:
        key = override.get_key_element()
        if is_about_launching(key):
            continue
        values.pop(key, None)
        if override.is_discrete_sweep():
            choices = islice(override.sweep_string_iterator(), MOST_RUNS + 1)
            # A glob finds the schemas, too, which files of choices are made of.
            globbed = override.value_type is ValueType.GLOB_CHOICE_SWEEP
            swept = [value for value in choices if not (globbed and value.startswith("schema"))]
            values[key] = [f"{key}={value}" for value in swept]
        elif override.is_sweep_override():
            raise ReproError(f"{override.input_line}: a sweep must name its values, such as 1,2,3 or range(3).")
        else:
            values[key] = [str(override.input_line)]
        if not values[key]:
            raise ReproError(f"{override.input_line}: the sweep is empty; it must have at least one value.")
    asked_for = math.prod(map(len, values.values()))
    if asked_for > MOST_RUNS:
        swept_over = " ".join(key for key, of_key in values.items() if len(of_key) > 1)
        raise ReproError(f"sweeping over {swept_over} asks for more than {MOST_RUNS:,} runs; take fewer values.")
    return [list(job) for job in product(*values.values())]


def is_about_launching(override: str) -> bool:
    """Whether an override is Hydra's and not the run's, such as `hydra/launcher=joblib`."""
    return override.lstrip("+~").startswith(("hydra/", "hydra."))


def set_afterwards(jobs: Sequence[Sequence[str]], settled: bool) -> frozenset[str]:
    """Overrides that choose nothing: setting their keys in what is composed without them is all that Hydra would do.

    Args:
        settled: whether no defaults of a game are looked for; else a note names those that are taken and nobody typed,
            so that all values must be composed, and only seeds and folders are set afterwards.
    """
    everything = set().union(*jobs)
    plain = {o for o in everything if _OF_A_RUN.fullmatch(o) or (settled and _VALUE.fullmatch(o))}
    spelled = {override: override.partition("=")[0] for override in everything}

    def stands_alone(override: str) -> bool:
        """Whether no other that is composed, or of another key, is about this key, a part of it, or what it is a part
        of: of values that are all set afterwards the last counts."""
        key = f"{spelled[override]}."
        others = {
            f"{spelled[other].lstrip('+~')}."
            for other in everything
            if other not in plain or spelled[other] != spelled[override]
        }
        return not any(key.startswith(other) or other.startswith(key) for other in others)

    return frozenset(override for override in plain if stands_alone(override))


def quoted(text: str) -> str:
    """A text as a value in an override, whatever characters it has; of a plain path itself."""
    if _PLAIN_PATH.fullmatch(text):
        return text
    # An interpolation is escaped by a backslash, and so are backslashes before it.
    literal = re.sub(r"(\\*)\$\{", lambda match: f"{2 * match[1]}\\${{", text)
    return str(QuotedString(literal, Quote.single).with_quotes())
