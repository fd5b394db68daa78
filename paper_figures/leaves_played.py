"""What figure 13 shows: whose values stand at the leaves of turns, how these are played, and the errors of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, ZERO_SUM

UNSAFE, SAFE = "unsafe", "safe"
HOW = {UNSAFE: "unsafe", SAFE: "safe"}
OF_HAND, OF_MET, OF_MATCHUP = "error/hand", "error/met", "error/matchup"
ERRORS = {
    OF_HAND: "per hand", OF_MET: "met in play", OF_MATCHUP: "by matchup", "error/rare": "with all rivers alike",
}  # fmt: skip
"""Errors of the leaves, by how hands and rivers are weighted."""


@dataclass(frozen=True)
class Shown:
    """What values the rivers in one row: a read-out of a sweep.

    Attributes:
        name: for readers.
        sweep, readout: where its play is.
        colour: of its points.
    """

    name: str
    sweep: str
    readout: str
    colour: str


@dataclass(frozen=True)
class Learned:
    """Networks of a sweep, of DCVN and of DEVN.

    Attributes:
        sweep: of theirs.
        shown: in what they differ from those of `networks`, in rows.
        said: the same in claims.
        key: what their rows' keys begin with.
        also_zero_sum: whether DEVN made zero-sum is judged beside DCVN, too.
    """

    sweep: str
    shown: str = ""
    said: str = ""
    key: str = ""
    also_zero_sum: bool = True

    @property
    def leaves(self) -> tuple[str, str, str]:
        """Keys of the rows of DCVN, DEVN and DEVN made zero-sum."""
        return (f"{self.key}{DCVN}", f"{self.key}{DEVN}", f"{self.key}zero_sum") if self.key else (DCVN, DEVN, ZERO_SUM)

    def rows(self) -> dict[str, Shown]:
        """By key."""
        names = (("DCVN", DCVN), ("DEVN", DEVN), ("DEVN, zero-sum" if self.key else "DEVN, made zero-sum", ZERO_SUM))
        differing = f", {self.shown}" if self.shown else ""
        return {
            leaves: Shown(name + differing, self.sweep, readout, devn.COLOURS[readout])
            for leaves, (name, readout) in zip(self.leaves, names, strict=True)
        }


NETWORKS = Learned("networks")
OTHERS = (
    Learned("few_buckets", "fewer buckets", "fewer buckets", "few_", False),
    Learned("met", "rivers of play", "rivers of play", "met_"),
    Learned("sharp", "sharper labels", "sharper labels", "sharp_", False),
    Learned("longer", "three times as long", "networks that learned three times as long", "longer_"),
    # Judged once more, by seeds that ran after these rules had been written.
    Learned("fresh", "ten fresh seeds", "fresh seeds", "fresh_"),
)
FRESH = OTHERS[-1]

LEAVES = {
    "exact": Shown("exact", "reference", "exact", "#000000"),
    "oracle_dcvn": Shown("buckets' exact CFVs", "reference", "oracle_dcvn", "#56B4E9"),
    "oracle_devn": Shown("buckets' exact EVs", "reference", "oracle_devn", "#E69F00"),
    **NETWORKS.rows(),
    "own_step": Shown(devn.NAMES[devn.OWN_STEP], "own_step", devn.OWN_STEP, devn.COLOURS[devn.OWN_STEP]),
    **{leaves: shown for others in OTHERS for leaves, shown in others.rows().items()},
    "checked_down": Shown("checking down", "reference", "checked_down", "#999999"),
    "uniform": Shown("none: uniform turn", "reference", "uniform", "#999999"),
}
"""Rows, from the best leaves that there can be to none."""


def present(data: pd.DataFrame) -> dict[str, Shown]:
    """The rows that were played, which not all are at every scale; of fewer turns than others are the name says so."""
    there = {leaves: shown for leaves, shown in LEAVES.items() if shown.sweep in set(data.sweep)}
    played = {leaves: turns(data, leaves, UNSAFE).shape[1] for leaves in there}
    most = max(played.values())
    fewer = {leaves: f" ({count} of {most} turns)" for leaves, count in played.items() if count < most}
    return {leaves: replace(shown, name=shown.name + fewer.get(leaves, "")) for leaves, shown in there.items()}


def turns(data: pd.DataFrame, leaves: str, metric: str) -> pd.DataFrame:
    """A metric of every turn: `[seeds, turns]`."""
    shown = LEAVES[leaves]
    rows = data[(data.sweep == shown.sweep) & (data.readout == shown.readout)]
    rows = rows[rows.metric.str.startswith(f"{metric}/turn_")]
    return rows.pivot(index="seed", columns="metric", values="value")


def by_seed(data: pd.DataFrame, leaves: str, metric: str) -> pd.Series:
    """The mean over a seed's turns."""
    mean: pd.Series = turns(data, leaves, metric).mean(axis=1)
    return mean


def loss(data: pd.DataFrame, leaves: str) -> pd.Series:
    """Unbucketed loss on the validation rivers, by seed."""
    shown = LEAVES[leaves]
    rows = data[(data.sweep == shown.sweep) & (data.readout == shown.readout) & (data.metric == "unbucketed")]
    return rows.set_index("seed").value


def correlations(
    data: pd.DataFrame, error: str, every: Sequence[str] = NETWORKS.leaves, metric: str = UNSAFE
) -> pd.Series:
    """By seed, Spearman's correlation over networks and turns of an error of the leaves with exploitability."""
    errors, played = (np.hstack([turns(data, leaves, of) for leaves in every]) for of in (error, metric))
    return _by_rank(errors, played)


def correlations_apart(data: pd.DataFrame, error: str, leaves: str, others: str, metric: str) -> pd.Series:
    """By seed, Spearman's correlation over turns of how far two networks' errors are apart with how far their play is.

    What makes a turn hard for both is not in it.
    """
    errors, played = (turns(data, leaves, of).to_numpy() - turns(data, others, of).to_numpy() for of in (error, metric))
    return _by_rank(errors, played)


def _by_rank(first: np.ndarray, second: np.ndarray) -> pd.Series:
    """Spearman's correlation of each row `[seeds, turns]`; nan where all are alike."""
    return pd.DataFrame(first).rank(axis=1).corrwith(pd.DataFrame(second).rank(axis=1), axis=1)
