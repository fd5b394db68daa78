"""What runs need that may not be there: memory, a GPU, other trainings, stored data. Looked at before any work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from repro.config.checks import check_device, device_here, game_for_checks
from repro.config.keys import training_key
from repro.config.memory import check_memory
from repro.config.schema import Config
from repro.plans.planned import Run
from repro.stored.trained import is_to_train


def check_sizes(runs: Iterable[Run], given: float | None = None) -> None:
    """Refuse runs whose values, used to the full, need more memory than whoever is to do them has.

    Args:
        given: bytes that a cluster gives each of its jobs; None: this machine does them.

    Raises:
        ReproError: names the key, its value, and both sizes.
    """
    for run in runs:
        for config in run.configs:
            check_memory(config, game_for_checks(config), _trains(config), given)


def lacking_a_gpu(runs: Sequence[Run]) -> str:
    """What lacks here for trainings on a GPU; empty where nothing does."""
    lacking = sum(_trains(c) and device_here(c) != c.device for run in runs for c in run.configs)
    return f"{lacking} training(s) need a GPU, and torch finds none here" if lacking else ""


def check_here(runs: Sequence[Run]) -> None:
    """Refuse runs that this machine cannot do, because it lacks the memory or the GPU; before anything is done.

    Raises:
        ReproError: as for `check_sizes`; or a training's device is not here.
    """
    check_sizes(runs)
    for config in (config for run in runs for config in run.configs if _trains(config)):
        check_device(config)


def check_needed(runs: Sequence[Run]) -> None:
    """Refuse runs that need what neither is there nor is made by another of them: opponents, or stored data.

    Of data that another one makes, how much that will be is not looked at.

    Raises:
        ReproError: says what is missing, and how it is made.
    """
    made = {training_key(config) for run in runs for config in run.configs}
    for run in runs:
        others = run.needs - made
        stores = run.config.algorithm.stored_data(run.config) is not None
        if not others and not stores:
            continue
        from repro.stored.results import check_others, is_measured  # noqa: PLC0415  (torch takes a second)

        for config in (config for config in run.configs if config.force or not is_measured(config)):
            if not any(run.learns_from(other) for other in runs):
                config.algorithm.check_stored_data(config)
            check_others(config, others)


def _trains(config: Config) -> bool:
    return config.force or is_to_train(config)
