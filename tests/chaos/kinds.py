"""The kinds of run that are disturbed: every algorithm, engine and store, most a second or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paper_figures.sweeps import against
from tests.chaos.victims import Module


@dataclass(frozen=True)
class Kind:
    """One kind of run.

    Attributes:
        arguments: what the command is asked for, as typed in a shell; KEY is the only run there is before.
        module: which command of `repro`.
        before: arguments of `repro.run` for runs that it needs; they are not disturbed.
        also: other arguments that it may be repeated with after it was disturbed.
        sweep: whether it has several processes, which cannot be looked into, but killed.
    """

    arguments: str
    module: Module = "run"
    before: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    sweep: bool = False

    @property
    def anew(self) -> bool:
        """Whether every repetition begins anew, beside which MLflow keeps what was there."""
        return "force=true" in self.arguments


_KUHN = (
    "game=kuhn algorithm.iterations=12 algorithm.traversals=200 algorithm.value.steps=10 algorithm.value.batch_size=64 "
    "algorithm.value_capacity=1000 algorithm.snapshot_every=2 network.width=16"
)
_DEEP_CFR = (
    f"{_KUHN} algorithm=sd_cfr_and_deep_cfr algorithm.average.steps=10 algorithm.average.batch_size=64 "
    "algorithm.strategy_capacity=1000"
)
_OTHER = f"{_KUHN} algorithm=sd_cfr"
_THREE = "'+algorithm.readouts.sd_cfr_3={kind: ensemble, capacity: 3}'"
_NFSP = "experiment=nfsp_leduc scale=smoke algorithm.iterations=4"
_DATA = "experiment=devn_data scale=smoke"

KINDS: Mapping[str, Kind] = {
    "Deep CFR": Kind(_DEEP_CFR),
    "SD-CFR": Kind(_OTHER),
    "strategies asked": Kind(f"{_KUHN} algorithm=sd_cfr algorithm.strategies=asked algorithm.opening=network"),
    "D2CFR": Kind("experiment=d2cfr_leduc scale=smoke algorithm.iterations=6"),
    "NFSP": Kind(_NFSP),
    "Linear CFR": Kind("game=leduc algorithm=linear_cfr algorithm.iterations=12 algorithm.snapshot_every=2"),
    "MCCFR": Kind("game=kuhn algorithm=es_mccfr algorithm.iterations=12 algorithm.snapshot_every=2"),
    "tutorial": Kind("experiment=kuhn scale=smoke algorithm.iterations=40 algorithm.snapshot_every=10"),
    "Deep CFR, Hold'em": Kind("experiment=fhp_deep_cfr scale=smoke"),
    "two seeds together": Kind("experiment=fhp_deep_cfr scale=smoke seeds=[0,1]"),
    "D2CFR, Hold'em": Kind("experiment=d2cfr_hnlh scale=smoke"),
    "abstraction": Kind("experiment=fhp_abstractions scale=smoke algorithm.buckets=10"),
    "blueprint": Kind("experiment=hunl_blueprint scale=smoke algorithm.buckets=10"),
    "solved subgames": Kind(_DATA),
    "DEVN": Kind("experiment=devn scale=smoke algorithm=devn", before=(_DATA,)),
    "DEVN, fresh subgames": Kind(
        "experiment=devn scale=smoke algorithm=devn algorithm.iterations=6 algorithm.fresh=100 algorithm.pool=300",
        before=(_DATA,),
    ),
    "encoding error": Kind("game=river_subgames experiment=encoding_error scale=smoke"),
    "match": Kind(
        f"{_OTHER} evaluation=[exploitability,match] evaluation.match.hands=1000 "
        + against("other", f"{_OTHER} seed=7", "sd_cfr"),
        before=(f"{_OTHER} seed=7",),
    ),
    "more of a finished run": Kind(f"{_OTHER} {_THREE}", before=(_OTHER,)),
    "finished run, measured": Kind(f"KEY evaluation=exploitability {_THREE}", "evaluate", before=(_OTHER,)),
    "finished run, anew": Kind(f"{_OTHER} force=true", before=(_OTHER,), also=(_OTHER,)),
    "two seeds, of one's own": Kind(
        "experiment=fhp_deep_cfr scale=smoke seeds=[0,1]", before=("experiment=fhp_deep_cfr scale=smoke seed=0",)
    ),
    "two processes": Kind(f"-m {_DEEP_CFR} seed=0,1 hydra/launcher=joblib hydra.launcher.n_jobs=2", sweep=True),
    "figure": Kind("figure1 --scale smoke --jobs 1", "figure"),
    "figure, two processes": Kind("figure1 --scale smoke --jobs 2", "figure", sweep=True),
}
