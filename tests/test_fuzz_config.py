"""Configurations at random: whatever is typed, planning succeeds or refuses it in one sentence that names the key.

REPRO_FUZZ is how many cases each test tries, or `all`; without it, enough for some two minutes altogether.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from repro.common.errors import ReproError
from repro.config import game_defaults, memory
from repro.config.checks import game_for_checks
from repro.config.composed import CONF
from repro.config.keys import flatten
from repro.jobs.needs import check_sizes
from repro.plans.composing import composing
from repro.plans.planning import plan

_ALGORITHMS = (
    "cfr", "cfr_plus", "dcfr", "linear_cfr", "es_mccfr", "os_mccfr", "deep_cfr", "sd_cfr", "sd_cfr_and_deep_cfr",
    "d2cfr", "nfsp", "solved_subgames", "encoding_error", "dcvn", "devn",
    "reference_leaves",
)  # fmt: skip
_NETWORKS = ("deep_cfr", "brown", "fc", "nfsp")
_GAMES = ("kuhn", "leduc", "big_leduc", "fhp", "fhp5", "fhp_limit", "hnlh", "hunl_pot")

SMALL = (
    ("game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000"),
    ("game=kuhn", "algorithm=d2cfr", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000"),
    ("game=kuhn", "algorithm=nfsp", "algorithm.replay_capacity=1000", "algorithm.reservoir_capacity=1000"),
    ("game=kuhn", "algorithm=es_mccfr"), ("game=kuhn", "algorithm=os_mccfr"), ("game=kuhn", "algorithm=dcfr"),
    ("algorithm=solved_subgames",), ("algorithm=dcvn",), ("algorithm=devn", "algorithm.buckets=10", "network.width=5"),
)  # fmt: skip
"""What is built in no time."""

BASES: tuple[tuple[str, ...], ...] = (
    *((f"algorithm={name}",) for name in _ALGORITHMS), *(base for base in SMALL if len(base) > 1),
    *((f"network={name}",) for name in _NETWORKS),
    *((f"game={name}", "evaluation=costs", "network=deep_cfr") for name in _GAMES),
    ("game=kuhn", "algorithm=kuhn_post"), ("game=turn_subgames", "algorithm=dcvn"),
    ("game=kuhn", "algorithm=cfr", "evaluation=[exploitability,match,strategy,costs]",
     "+evaluation.match.opponents.x=0123456789ab"),
    ("algorithm=sd_cfr_and_deep_cfr", "evaluation=disagreement"), ("algorithm=devn", "evaluation=play"),
    ("game=fhp", "evaluation.exploitability.boards=3"),
    ("logger=csv",),
    ("+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: sd_cfr/exploitability}",),
)  # fmt: skip
"""Every algorithm, network, game and evaluation."""

VALUES = (
    "0", "1", "-1", "2", "3", "1000000", "1000000000000", "1" + 30 * "0", "0.5", "1e-300", "1e300", "inf", "-inf",
    "nan", "null", "true", "false", "''", "no_such", "é", "'a b'", "\"a'b\"", "'a\"b'", "'[/b]'", "'a\nb'", "../x",
    300 * "x", "[]", "[1,2]", "[x]", "[-1,1e300]", "[inf,nan]", "{}", "{a: 1}", "{_target_: no_such}", "'${x}'",
    "'${seed}'", "???", "'a?b#c%20d'", "'\\'", "cuda", "listed", "asked", "exact", "aggregated",
)  # fmt: skip
"""None is the name of a module, which would be imported where one is asked for."""


def cases(everything: Sequence[Any], usual: int) -> list[Any]:
    """A sample of all cases, of every kind as many, always the same; or as many as REPRO_FUZZ says."""
    asked = os.environ.get("REPRO_FUZZ", str(usual))
    shuffled = random.Random(0).sample(everything, len(everything))
    return shuffled if asked == "all" else shuffled[: int(asked)]


# -- planning quickly ------------------------------------------------------------------------------------------------


@cache
def composed(base: tuple[str, ...]) -> DictConfig:
    with composing(None):
        return compose("config", list(base))


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[str, ...], str], bool]:
    """Plans a base with an override more as Hydra does, which composes the base once; whether it is accepted.

    What Hydra does for keys that are no choices of a file is to apply them to what is composed.
    """

    def composed_with_more(name: str, overrides: Sequence[str]) -> DictConfig:
        if overrides[0].startswith(game_defaults.GROUP):
            return compose(name, list(overrides))
        base = next(base for base in sorted(BASES, key=len, reverse=True) if base == tuple(overrides[: len(base)]))
        config = composed(base).copy()
        more = OverridesParser.create().parse_overrides(list(overrides[len(base) :]))
        ConfigLoaderImpl._apply_overrides_to_config(more, config)
        return config

    for base in BASES:
        composed(base)
    monkeypatch.setattr(game_defaults, "compose", composed_with_more)
    return accepted


def accepted(base: tuple[str, ...], override: str) -> bool:
    """Whether planning accepts an override; what it refuses, it refuses in one sentence that names the key."""
    try:
        check_sizes(plan([*base, override], multirun=False).runs)
    except ReproError as error:
        sentence, key = str(error), override.lstrip("+~").partition("=")[0]
        assert "\n" not in sentence, override
        assert ("game" if key == "game.name" else key.split(".")[-1]) in sentence, f"{override}: {sentence}"
        return False
    return True


def keys_of(base: tuple[str, ...]) -> Iterator[str]:
    """Every key, dotted, that has a value and is no choice of a file."""
    yield from flatten(OmegaConf.to_container(composed(base), resolve=False))  # type: ignore[arg-type]


def values() -> list[tuple[tuple[str, ...], str]]:
    return [(base, f"{key}={value}") for base in BASES for key in keys_of(base) for value in VALUES]


def misspelt(key: str, how: int) -> str:
    """Two letters exchanged, or one doubled, or one left out, of the last part."""
    parent, dot, last = key.rpartition(".")
    at = len(last) // 2
    spelt = (
        last[: at - 1] + last[at] + last[at - 1] + last[at + 1 :],
        last[:at] + last[at] + last[at:],
        last[:at] + last[at + 1 :],
    )
    return parent + dot + spelt[how]


def unknown() -> list[tuple[tuple[str, ...], str, str]]:
    return [
        (base, f"{prefix}{misspelt(key, how)}=1", key)
        for base in BASES
        for key in keys_of(base)
        for prefix in ("", "+", "++")
        for how in range(3)
        if misspelt(key, how) != key and not key.endswith("._target_")
    ]


# -- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_any_value_is_accepted_or_refused_in_one_sentence(quickly):
    judged = [quickly(*case) for case in cases(values(), 500)]
    assert any(judged)
    assert not all(judged)


@pytest.mark.exhaustive
def test_no_unknown_key_is_accepted(quickly):
    for base, override, key in cases(unknown(), 300):
        assert not quickly(base, override), f"{override} was accepted beside {key}"


@pytest.mark.exhaustive
def test_experiments_at_all_scales_are_planned_and_no_unknown_key_is_accepted_beside_them():
    experiments = [
        (f"experiment={path.stem}", f"scale={scale}")
        for path in (CONF / "experiment").glob("*.yaml")
        for scale in ("smoke", "laptop", "paper")
        if scale == "paper" or (CONF / "departures" / scale / path.name).is_file()
    ]
    for base in cases(sorted(experiments), 12):
        plan(base, multirun=False)
        assert not accepted(base, "+algorithm.iteratoins=3")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_is_accepted_can_be_built(quickly, monkeypatch):
    """On the smallest games; what is built may take a hundred megabytes."""
    monkeypatch.setattr(memory, "memory_of_machine", lambda device: 1e8)
    small = [base for base in BASES if "game=kuhn" in base or base in SMALL]
    tried = [(base, f"{key}={value}") for base in small for key in keys_of(base) for value in VALUES]
    about_training = [(base, line) for base, line in tried if line.startswith(("algorithm.", "network.", "game."))]
    built = 0
    for base, override in cases(about_training, 300):
        if not quickly(base, override):
            continue
        ((config,),) = [run.configs for run in plan([*base, override], multirun=False).runs]
        with suppress(ReproError):
            config.algorithm.build(game_for_checks(config), config)
            built += 1
    assert built, "nothing was"
