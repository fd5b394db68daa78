"""Sweeps: what `python -m repro.run -m` is asked for to make the runs of a target, at any scale.

A published setting is an experiment (conf/experiment), what departs from it at a scale conf/departures/<scale>; a sweep
says which seeds and values are wanted, and what is measured beside.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sweep:
    """One sweep of a target.

    Attributes:
        name: tells a target's sweeps apart in its data; empty where there is only one.
        overrides: as on the command line, quoted for a shell.
        at: by scale, further ones; they replace those of the same keys.
        only: the scales at which it is made; empty: all.
        if_asked: the scales at which it is made only if it is asked for by name; what is there of it already, or is
            taken of what is published, is drawn without that.
    """

    name: str
    overrides: str
    at: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    if_asked: tuple[str, ...] = ()

    def arguments(self, scale: str) -> list[str]:
        """Arguments after `python -m repro.run -m`."""
        arguments = [*shlex.split(self.overrides), f"scale={scale}", *shlex.split(self.at.get(scale, ""))]
        # A sweep over a key that is given twice would be one over all pairs.
        return list({argument.partition("=")[0].lstrip("+"): argument for argument in arguments}.values())


def against(name: str, overrides: str, readout: str) -> str:
    """The override that names an opponent in matches: the run that `overrides` ask for at the same scale.

    Args:
        name: of the metrics.
        overrides: as on the command line.
        readout: which of the opponent's.
    """
    quoted = ",".join(f'"{override}"' for override in [*shlex.split(overrides), "scale=${scale}"])
    # Hydra takes the value as it is between single quotes, and resolves it then.
    return shlex.quote(f"+evaluation.match.opponents.{name}='${{run_key:{quoted}}}/{readout}'")
