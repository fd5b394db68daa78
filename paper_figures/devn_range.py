"""How far counterfactual values of subgames range, beside DEVN's "CFVs are in the range [-0.5, 10]" (Sec. 6).

Extremes of a sample only move outwards as it grows. So a value beyond an end refutes it for good, and a sample that has
not come to an end says something of that only if it is as large as the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, digits
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, Claim
from repro.figures.frame import curves

UNIT = "pots"
_SMOKE = "algorithm.iterations=2"
_RANGE = "experiment=devn_data evaluation=[label_range] algorithm.first=0 seed=0"
_RIVERS = {"laptop": "algorithm.iterations=20 algorithm.snapshot_every=5", "smoke": _SMOKE}

SWEEPS = (
    # At laptop scale the first 500 turns of the row of table 4, and the first 5,000 rivers, which that of rivers has.
    Sweep(
        "range_turn", _RANGE,
        {
            "laptop": "game.name=turn_subgames algorithm.solver.tolerance=0.005 algorithm.iterations=50 "
            "algorithm.snapshot_every=10",
            "smoke": _SMOKE,
        },
    ),
    # The first of them, solved further: at laptop scale 100.
    Sweep(
        "range_turn_sharp", f"{_RANGE} algorithm.iterations=1000 algorithm.solver.tolerance=0.0001",
        {
            "laptop": "game.name=turn_subgames algorithm.solver.tolerance=0.001 algorithm.iterations=10 "
            "algorithm.snapshot_every=10",
            "smoke": f"{_SMOKE} algorithm.solver.tolerance=0.01",
        },
    ),
    Sweep("range_river", f"{_RANGE} game=river_subgames algorithm.iterations=4000", _RIVERS),
    # With all of DeepStack's pots.
    Sweep(
        "range_river_small_pots", f"{_RANGE} game=river_subgames game.least_pot=200 algorithm.iterations=4000", _RIVERS
    ),
)  # fmt: skip

PAPER_SUBGAMES = 8_500_000
"""In the smaller of the paper's datasets."""


@dataclass(frozen=True)
class End:
    """An end of the paper's range, in pots.

    Attributes:
        metric: of the sample's extreme there.
        name: what that is called.
        value: as it is printed.
        rounds: by how much a number can differ that is printed so.
        outwards: the sign of what is beyond.
    """

    metric: str
    name: str
    value: float
    rounds: float
    outwards: int

    def beyond(self, extreme: float) -> float:
        """How far a value is beyond; negative if it has not come so far."""
        return self.outwards * (extreme - self.value)


ENDS = (End("cfv/least", "least", -0.5, 0.05, -1), End("cfv/most", "highest", 10.0, 0.5, 1))


@dataclass(frozen=True)
class Sample:
    """Subgames of a sweep.

    Attributes:
        sweep: its name.
        subgames: what they are.
        as_paper: whether pots are those with which the paper's range is possible.
        rougher: the sample whose first subgames these are, with labels that are less exact, if there is one.
    """

    sweep: str
    subgames: str
    as_paper: bool = True
    rougher: Sample | None = None

    def curve(self, data: pd.DataFrame, metric: str) -> pd.Series:
        """A metric by number of shards; the last one has all subgames."""
        of_seed: pd.Series = curves(data, metric, readout="labels", sweep=self.sweep).iloc[0]
        return of_seed

    def at(self, data: pd.DataFrame, metric: str, which: int = -1) -> float:
        """A metric after one of the snapshots."""
        return float(self.curve(data, metric).iloc[which])

    def labels(self, data: pd.DataFrame) -> str:
        """To what share of the pot they are solved."""
        return f"{100 * data[data.sweep == self.sweep].solver_tolerance.iloc[0]:g}%"

    def named(self, data: pd.DataFrame) -> str:
        """For readers."""
        return f"{self.subgames}, labels to {self.labels(data)}"

    def is_in(self, data: pd.DataFrame) -> bool:
        """Whether it was run; published data may be older."""
        return bool((data.sweep == self.sweep).any())


_TURN = Sample("range_turn", "turn")
SAMPLES = (
    _TURN,
    Sample("range_turn_sharp", "turn", rougher=_TURN),
    Sample("range_river", "river (ours)"),
    Sample("range_river_small_pots", "river, all pots (ours)", as_paper=False),
)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That no value is outside of the paper's range, and that values come to both of its ends.

    Of subgames whose labels there are sharper ones of, those are judged: rough ones' extremes are the solver's.
    """
    judged: list[Claim] = []
    there = [sample for sample in SAMPLES if sample.is_in(data)]
    rough = [sample.rougher for sample in there]
    for sample in there:
        if sample in rough:
            continue
        judged.append(_inside(data, sample))
        if sample.as_paper:
            judged += [_reached(data, sample, end) for end in ENDS]
        if sample.rougher in there:
            judged.append(_nearer(data, sample, sample.rougher))
    return judged


def _inside(data: pd.DataFrame, sample: Sample) -> Claim:
    """The paper's sentence as it stands. What decides is the extreme that is further beyond its end, in what a printed
    number may be off."""
    extremes = {end: sample.at(data, end.metric) for end in ENDS}
    worst = max(extremes, key=lambda end: end.beyond(extremes[end]) / end.rounds)
    inside = all(end.beyond(extreme) <= end.rounds for end, extreme in extremes.items())
    number = sample.at(data, "subgames")
    note = (
        f"of {number:,.0f} subgames the value that is furthest out; holds if none is beyond -0.55 or 10.5, which are "
        "printed like the ends"
    )
    if inside:
        note += f"; none in so many still lets up to {digits(300 / number)}% of subgames have one (95%)"
    by_arithmetic = "; with pots of 2,000 chips and more none can be above 10" if sample.as_paper else ""
    return Claim(
        f"{sample.sweep}_inside", f"CFVs are in the range [-0.5, 10]: {sample.named(data)}",
        "Sec. 6" if sample.as_paper else "ours: with DeepStack's smallest pots, too",
        unless_smoke(data, HELD if inside else DID_NOT_HOLD), _alone(extremes[worst]), UNIT, worst.value,
        note + by_arithmetic,
    )  # fmt: skip


def _reached(data: pd.DataFrame, sample: Sample, end: End) -> Claim:
    """That the range is no wider than values are. It can be refuted from inside by as many subgames as the paper's."""
    extreme, number = sample.at(data, end.metric), sample.at(data, "subgames")
    beyond = end.beyond(extreme)
    short = NOT_TESTABLE if number < PAPER_SUBGAMES else DID_NOT_HOLD
    verdict = HELD if abs(beyond) <= end.rounds else DID_NOT_HOLD if beyond > 0 else short
    return Claim(
        f"{sample.sweep}_{end.name}", f"The {end.name} CFV is {end.value:g}: {sample.named(data)}",
        "ours, of Sec. 6",
        unless_smoke(data, verdict), _alone(extreme), UNIT, end.value,
        f"of {number:,.0f} subgames; holds if at most {end.rounds:g} off to either side, did not if further out; one "
        f"further in is not testable with fewer than {PAPER_SUBGAMES:,}, because more can only move it out",
    )  # fmt: skip


def _nearer(data: pd.DataFrame, sharp: Sample, rough: Sample) -> Claim:
    """That values below the lower end are what solving has left, and not values of an equilibrium."""
    low = ENDS[0]
    mine, theirs = sharp.curve(data, low.metric), rough.curve(data, low.metric)
    both = max(set(mine.index) & set(theirs.index))
    least, rougher = float(mine[both]), float(theirs[both])
    nearer = abs(least - low.value) < abs(rougher - low.value)
    number = sharp.curve(data, "subgames")[both]
    return Claim(
        f"{sharp.sweep}_nearer",
        f"Labels to {sharp.labels(data)} bring the least CFV nearer to {low.value:g} than labels to "
        f"{rough.labels(data)}: {sharp.subgames}",
        "ours", unless_smoke(data, HELD if nearer else DID_NOT_HOLD), _alone(least), UNIT, low.value,
        f"{digits(rougher)} with the rougher labels of the same {number:,.0f} subgames; nothing here is random but "
        "which these are",
    )  # fmt: skip


def _alone(value: float) -> Estimate:
    """An extreme of one sample, which has no interval."""
    return Estimate(value, float("nan"), float("nan"), 1)


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The extremes of every sample, as far as it was run; empty if none was."""
    samples = [sample for sample in SAMPLES if sample.is_in(data)]
    if not samples:
        return ""
    lines = [
        "| CFVs in pots | subgames | least | highest | of the first | least | highest | a subgame's least, median | "
        "highest, median |",
        "|---|---|---|---|---|---|---|---|---|",
        "| in the paper | 10,000,000 and 8,500,000 | -0.5 | 10 | – | – | – | – | – |",
    ]
    lines += [_row(data, sample) for sample in samples]
    return "\n".join(lines)


def _row(data: pd.DataFrame, sample: Sample) -> str:
    def extremes(which: int) -> str:
        ends = " | ".join(digits(sample.at(data, end.metric, which)) for end in ENDS)
        return f"{sample.at(data, 'subgames', which):,.0f} | {ends}"

    medians = " | ".join(digits(sample.at(data, f"{end.metric}/median")) for end in ENDS)
    return f"| {sample.named(data)} | {extremes(-1)} | {extremes(0)} | {medians} |"
