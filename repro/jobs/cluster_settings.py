"""What is asked of a cluster: files of conf/cluster, and what the command line says beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import OmegaConf

from repro.common.errors import ReproError, told_as
from repro.common.suggestions import did_you_mean
from repro.config.checks import check
from repro.config.composed import one_sentence
from repro.config.fields import above, at_least, between, label, one_of
from repro.jobs.elsewhere import Elsewhere
from repro.plans.composing import composing


@dataclass
class ClusterConfig:
    """A file of conf/cluster: what is asked of a cluster."""

    # submitit's: slurm, or local, which are processes of this machine.
    executor: str = one_of("slurm", "local")
    # Jobs of an array, among which runs are dealt. null: as many as go on at once.
    most_jobs: int | None = between(1, 100_000, None)
    # How many times a job goes on after its time limit. A preempted one always does.
    max_num_timeout: int = at_least(0, 100)
    # What each job is called, and asks for.
    name: str = label("repro")
    timeout_min: int = at_least(1, 1440)
    # null: what the cluster gives by itself.
    mem_gb: float | None = above(0, None)
    # null: as many as a run has threads, in all of its processes; and a GPU if runs are to have one.
    cpus_per_task: int | None = at_least(1, None)
    gpus_per_node: int | None = at_least(0, None)
    # Seconds before the time limit at which a job of SLURM is told to leave a checkpoint.
    slurm_signal_delay_s: int = at_least(1, 300)
    # Further options of SLURM's, `slurm_NAME`, which submitit and SLURM check.
    options: dict[str, Any] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """Of submitit's AutoExecutor."""
        ours = ("executor", "most_jobs", "max_num_timeout", "options")
        return {key: value for key, value in vars(self).items() if key not in ours} | self.options


_OPTION = "slurm_"
"""How keys of a cluster begin that have no schema here."""
_OF_A_JOB = ("nodes", "tasks_per_node", "stderr_to_stdout")
"""What submitit takes and is not anybody's choice: a job is one process, whose logs are looked for."""


def settings_of(where: Elsewhere, config_dir: str | None) -> ClusterConfig:
    """What is asked of a cluster, checked but for options of SLURM's.

    Raises:
        ReproError: it is at fault.
    """
    given = _composed(where.on, where.cluster, config_dir)
    known = {f.name for f in fields(ClusterConfig)} - {"options"}
    # null says nothing.
    named = {key: value for key, value in given.items() if key in known and value is not None}
    options = {key: value for key, value in given.items() if key not in known}
    for key, value in options.items():
        name = key.removeprefix(_OPTION)
        if name in known:  # submitit would take it instead of the one that is checked.
            raise ReproError(f"{key} is {value!r}; it must be given as {name}.")
        if name == key or name in _OF_A_JOB:
            hint = did_you_mean(key, [*known, *(other for other in given if other != key)])
            raise ReproError(f"{key} is no key of a cluster; see conf/cluster/slurm.yaml{hint}.")
    with told_as(one_sentence):
        merged = OmegaConf.merge(OmegaConf.structured(ClusterConfig), named)
        settings: ClusterConfig = OmegaConf.to_object(merged)  # type: ignore[assignment]
    check(settings)
    settings.options = options
    return settings


def _composed(choice: str, overrides: Sequence[str], config_dir: str | None) -> dict[str, Any]:
    """A file of conf/cluster, with `KEY=VALUE` of keys that it has or not.

    Raises:
        ReproError: it cannot be composed.
    """
    given = [f"++cluster.{override.lstrip('+')}" for override in overrides]
    with composing(config_dir, [f"cluster={choice}", *overrides]) as composer:
        cfg = composer.compose("cluster", [f"cluster={choice}", *given])
        plain: Any = OmegaConf.to_container(cfg.cluster, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in plain.items()}
