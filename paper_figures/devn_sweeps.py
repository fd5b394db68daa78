"""The sweeps that DEVN's targets share: two datasets of solved subgames, how accurate these are, and the
networks of the paper's settings.

At laptop scale dataset 1 is of full-deck rivers, dataset 2 of turns of a deck of 24 cards; at smoke scale both are of
rivers of a deck of 16 cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from paper_figures.sweeps import Sweep

SMALL_DECK_TURNS = "game.name=turn_subgames game.ranks=6 algorithm.solver.tolerance=0.002"
"""Dataset 2 at laptop scale."""
_TURNS = f"{SMALL_DECK_TURNS} algorithm.iterations=500 algorithm.snapshot_every=500"
"""So many shards of 10 in a run, which is half of them."""

DATA = {
    1: Sweep(
        "data_1", "experiment=devn_data seed=0 algorithm.first=0",
        {"laptop": "algorithm.first=0,100,200,300"},
    ),
    2: Sweep(
        "data_2", "experiment=devn_data seed=1 algorithm.first=0 algorithm.iterations=850000",
        {
            "laptop": f"{_TURNS} algorithm.first=0,500",
            "smoke": "algorithm.iterations=2",
        },
    ),
}  # fmt: skip
"""By the number of a dataset, the sweep that solves it."""

OF_LABELS = "experiment=devn_data evaluation=[label_errors] algorithm.first=0 algorithm.iterations=20"
FEW_LABELS = "algorithm.iterations=1 evaluation.label_errors.subgames=5"
"""What a sweep has that measures labels, and what it has at smoke scale."""

LABELS = (
    # How accurate the datasets' values are, and those of their subgames solved more exactly: at laptop scale 200 rivers
    # and 100 turns.
    Sweep(
        "labels_1", f"{OF_LABELS} seed=0",
        {"laptop": "algorithm.iterations=1 algorithm.solver.tolerance=0.001,0.0002", "smoke": FEW_LABELS},
    ),
    Sweep(
        "labels_2", f"{OF_LABELS} seed=1",
        {
            # Beside the paper's own ground truth, which is quick.
            "laptop": f"{SMALL_DECK_TURNS} algorithm.iterations=10 evaluation.label_errors.truth=0.0001",
            "smoke": FEW_LABELS,
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
    "laptop": f"algorithm.dataset=1 {SMALL_DECK_TURNS} algorithm.subgames=10000 algorithm.iterations=100 "
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

BY_OWN_STEP = (
    "'+algorithm.readouts.devn_own_step={kind: ev_zero_sum_cfv}' evaluation.value_errors.readouts=[devn_own_step]"
)
"""Of DEVN: what its predictions are once DCVN's own step has made them zero-sum."""

FRESH_SEEDS = range(3, 10)
"""Seeds that were to run after the rules on them had been written, as far as claims on settings I to V are judged."""
_BUCKETED = ("i", "ii", "iii", "iv", "v")


def _of_fresh_seeds(name: str, number: str, overrides: str) -> Sweep:
    seeds = f"seed=range({FRESH_SEEDS.start},{FRESH_SEEDS.stop})"
    return Sweep(
        f"{name}_{number}", f"experiment=devn network.layers=2,3,5,7 {seeds} {overrides}",
        SETTINGS[f"setting_{number}"].at, only=("laptop",), if_asked=("laptop",),
    )  # fmt: skip


FRESH = {number: _of_fresh_seeds("fresh", number, "algorithm=dcvn,devn") for number in _BUCKETED}
OWN_STEP = {number: _of_fresh_seeds("own_step", number, f"algorithm=devn {BY_OWN_STEP}") for number in _BUCKETED}
"""Of the settings with buckets, by number: fresh seeds; and these read out by DCVN's own step."""


PART_1 = Sweep(DATA[1].name, DATA[1].overrides, {"laptop": "algorithm.first=0"})
PART_2 = Sweep(DATA[2].name, DATA[2].overrides, {**DATA[2].at, "laptop": f"{_TURNS} algorithm.first=0"})
"""Parts of the data: at laptop scale a quarter of dataset 1, and half of dataset 2."""

_AS_IN_CODE = "algorithm.normalise=true algorithm.optimizer=adamw"

WAYS = {
    "text": ("dcvn,devn", ""),
    "code_devn": ("devn", _AS_IN_CODE),
    "code_dcvn": ("dcvn", f"{_AS_IN_CODE} algorithm.zero_sum_layer=false"),
    "code_dcvn_layer": ("dcvn", _AS_IN_CODE),
}
"""Of training as in the text, and as in the authors' code without DCVN's zero-sum layer or with it: methods, and
overrides."""


def in_all_ways(number: str, dataset: int) -> Iterator[Sweep]:
    """Networks of a setting, three and seven layers deep, trained in all ways; at laptop scale on parts of the data.

    Args:
        number: the setting's Roman number, small.
    """
    setting = SETTINGS[f"setting_{number}"]
    fewer = {1: "algorithm.subgames=25000 algorithm.iterations=20", 2: "algorithm.subgames=5000"}
    at = {scale: f"{overrides} network.layers=3,7" for scale, overrides in setting.at.items()}
    at["laptop"] = f"{at.get('laptop', '')} {fewer[dataset]}"
    for way, (methods, how) in WAYS.items():
        overrides = f"experiment=devn algorithm={methods} network.layers=3,7 seed=range(3) {how}"
        yield Sweep(f"{number}_{way}", overrides, at)


def sweeps(datasets: Iterable[int], settings: Iterable[str]) -> tuple[Sweep, ...]:
    """Those of some settings (`i`, `ii`, ...), after those that solve their subgames; of those with buckets also fresh
    seeds."""
    names = list(settings)
    fresh = [FRESH[name] for name in names if name in FRESH]
    return (*(DATA[number] for number in datasets), *(SETTINGS[f"setting_{name}"] for name in names), *fresh)
