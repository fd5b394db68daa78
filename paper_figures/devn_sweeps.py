"""The sweeps that DEVN's targets share: two datasets of solved subgames, how accurate these are, and the
networks of the paper's settings.

At laptop scale dataset 1 is of full-deck rivers, dataset 2 of turns of a deck of 24 cards; at smoke scale both are of
rivers of a deck of 16 cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paper_figures.sweeps import Sweep

_SMALL_DECK_TURNS = "game.name=turn_subgames game.ranks=6 algorithm.solver.tolerance=0.002"
"""Dataset 2 at laptop scale."""

DATA = {
    1: Sweep(
        "data_1", "experiment=devn_data seed=0 algorithm.first=0",
        {"laptop": "algorithm.first=0,100,200,300"},
    ),
    2: Sweep(
        "data_2", "experiment=devn_data seed=1 algorithm.first=0 algorithm.iterations=850000",
        # 10,000 in shards of 10, half of them a run.
        {
            "laptop": f"{_SMALL_DECK_TURNS} algorithm.iterations=500 algorithm.snapshot_every=500 "
            "algorithm.first=0,500",
            "smoke": "algorithm.iterations=2",
        },
    ),
}  # fmt: skip
"""By the number of a dataset, the sweep that solves it."""

_LABELS = "experiment=devn_data evaluation=[label_errors] algorithm.first=0 algorithm.iterations=20"
_FEW_LABELS = "algorithm.iterations=1 evaluation.label_errors.subgames=5"

LABELS = (
    # How accurate the datasets' values are, and those of their subgames solved more exactly: at laptop scale 200 rivers
    # and 100 turns.
    Sweep(
        "labels_1", f"{_LABELS} seed=0",
        {"laptop": "algorithm.iterations=1 algorithm.solver.tolerance=0.001,0.0002", "smoke": _FEW_LABELS},
    ),
    Sweep(
        "labels_2", f"{_LABELS} seed=1",
        {
            # Beside the paper's own ground truth, which is quick.
            "laptop": f"{_SMALL_DECK_TURNS} algorithm.iterations=10 evaluation.label_errors.truth=0.0001",
            "smoke": _FEW_LABELS,
        },
    ),
)  # fmt: skip
"""A part of each dataset, measured."""

_WIDE = {"paper": "network.width=1024", "laptop": "network.width=256", "smoke": "network.width=8"}
_MANY_BUCKETS = {"paper": "algorithm.buckets=2000", "laptop": "algorithm.buckets=500", "smoke": "algorithm.buckets=20"}
# As wide as setting II [DEVN, Supplement Table 6].
_NO_BUCKETS = dict.fromkeys(("paper", "laptop"), "network.layers=3,5,7 algorithm.buckets=null") | {
    "smoke": "algorithm.buckets=null"
}
_DATASET_2 = {
    "paper": "algorithm.dataset=1 algorithm.subgames=8500000",
    "laptop": f"algorithm.dataset=1 {_SMALL_DECK_TURNS} algorithm.subgames=10000 algorithm.iterations=100 "
    "algorithm.snapshot_every=10",
    "smoke": "algorithm.dataset=1",
}


def _setting(number: str, *differences: Mapping[str, str]) -> Sweep:
    """A setting of DEVN Sec. 6, by how it differs from setting I."""
    few = {"smoke": "network.layers=3,7 seed=0"}
    at = {
        scale: " ".join(d[scale] for d in (few, *differences) if scale in d) for scale in ("paper", "laptop", "smoke")
    }
    return Sweep(
        f"setting_{number}", "experiment=devn algorithm=dcvn,devn network.layers=2,3,5,7 seed=range(3)", at
    )  # fmt: skip


SETTINGS = {
    sweep.name: sweep
    for sweep in (
        _setting("i"),
        _setting("ii", _WIDE),
        _setting("iii", _WIDE, _MANY_BUCKETS),
        _setting("iv", _WIDE, _DATASET_2),
        _setting("v", _WIDE, _MANY_BUCKETS, _DATASET_2),
        _setting("vi", _WIDE, _NO_BUCKETS),
        _setting("vii", _WIDE, _NO_BUCKETS, _DATASET_2),
    )
}
"""The paper's settings, by the names of their sweeps."""


def in_pipelines(number: str, pipelines: Mapping[str, tuple[str, str]]) -> tuple[Sweep, ...]:
    """Networks of a setting with three and seven layers, trained in several ways; at laptop scale on parts of the data.

    Args:
        number: the setting's Roman number, small.
        pipelines: by the ends of their sweeps' names, methods and overrides.
    """
    setting = SETTINGS[f"setting_{number}"]
    second = "algorithm.dataset=1" in setting.at["laptop"]
    part = "algorithm.subgames=5000" if second else "algorithm.subgames=25000 algorithm.iterations=20"
    fewer = {"paper": "", "laptop": part, "smoke": ""}
    at = {scale: f"{setting.at.get(scale, '')} {fewer[scale]} network.layers=3,7" for scale in fewer}
    return tuple(
        Sweep(f"{number}_{end}", f"experiment=devn algorithm={methods} network.layers=3,7 seed=range(3) {how}", at)
        for end, (methods, how) in pipelines.items()
    )


def parts_of_data() -> tuple[Sweep, ...]:
    """Both datasets; at laptop scale a quarter of the first, and half of the second."""
    half = f"{_SMALL_DECK_TURNS} algorithm.iterations=500 algorithm.snapshot_every=500 algorithm.first=0"
    return (
        Sweep(DATA[1].name, DATA[1].overrides, {"laptop": "algorithm.first=0"}),
        Sweep(DATA[2].name, DATA[2].overrides, {**DATA[2].at, "laptop": half}),
    )


def sweeps(datasets: Iterable[int], settings: Iterable[str]) -> tuple[Sweep, ...]:
    """Those of some settings (`i`, `ii`, ...), after those that solve their subgames."""
    return (*(DATA[number] for number in datasets), *(SETTINGS[f"setting_{name}"] for name in settings))
