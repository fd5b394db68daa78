"""What runs on a GPU: the same steps as on the CPU, and every experiment. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from repro.algorithms.stacked import StackedAdam, fit_together
from repro.engine.sampling import SamplingEngine
from repro.games import load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import average_network, value_network
from repro.networks.muon import NO_MATRICES, hidden_matrices
from repro.policies.network import Uniform
from repro.tracking import record as records
from tests.helpers.commands import call, executed, planned, results
from tests.helpers.holdem import NETWORK
from tests.test_stacked import GAMES, game_of, met, minibatches

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")

EXPERIMENTS = sorted(path.stem for path in (Path(__file__).parents[1] / "conf" / "experiment").glob("*.yaml"))
FOR_THE_CPU = {"fhp_fits"}
"""Those whose algorithm says so."""
OTHERWISE = {"fhp_abstractions": "algorithm.buckets=50", "hunl_blueprint": "algorithm.buckets=20"}
"""What sweeps change on the small decks of scale smoke."""
AFTER = {"devn": "devn_data", "leaves": "leaves_data"}
"""The experiment that solves the subgames that another learns from."""


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("build", [value_network, average_network])
@pytest.mark.parametrize(
    "options",
    [{}, {"averaging": 0.9}, {"focus": 0.2}, {"muon_over_adam": 7.0}, {"precision": "tf32"}, {"precision": "bf16"}],
    ids=str,
)
@pytest.mark.parametrize(("count", "parts"), [(1, 1), (3, 1), (3, 16)])
def test_replayed_steps_are_those_of_the_cpu(name: str, build: Any, options: dict[str, Any], count: int, parts: int):
    """Of networks with minibatches of their own, from the same start and in two fits."""
    assert_steps_are_those_of_the_cpu(name, build, options, count, parts, compiled=False)


@pytest.mark.parametrize("options", [{"focus": 0.2, "muon_over_adam": 7.0}, {"averaging": 0.9, "precision": "tf32"}])
@pytest.mark.parametrize(("count", "parts"), [(1, 1), (3, 16)])
def test_compiled_steps_are_those_of_the_cpu(options: dict[str, Any], count: int, parts: int):
    torch.compiler.reset()
    assert_steps_are_those_of_the_cpu("fhp", value_network, options, count, parts, compiled=True)


def assert_steps_are_those_of_the_cpu(
    name: str, build: Any, options: dict[str, Any], count: int, parts: int, compiled: bool
) -> None:
    rows, steps, found = 64, 20, []
    batches = [minibatches(met(game_of(name)), seed, steps, rows) for seed in range(count)]
    for device in ("cpu", "cuda"):
        game = load(name, device=device, **GAMES[name])  # type: ignore[arg-type]
        features = HoldemFeatures(game)
        torch.manual_seed(0)
        networks = [build(NETWORK, features.columns, 3) for _ in range(count)]
        matrices = hidden_matrices(networks[0]) if "muon_over_adam" in options else NO_MATRICES
        start = [torch.cat([p.detach().flatten() for p in n.parameters()]).to(device) for n in networks]
        moved = [[_on(batch, device) for batch in of_one] for of_one in batches]
        how: dict[str, Any] = {"parts": parts, "compiled": compiled} if device == "cuda" else {}
        stacked = StackedAdam(
            networks[0].to(device), features.fixed_rows, count, rows, 0.1, matrices=matrices, **options, **how
        )  # fmt: skip
        for _ in range(2):
            stacked.load(start)
            losses = fit_together(stacked, zip(*moved, strict=True), steps, 1e-3, "cosine")
        found.append((losses, (stacked.flat - torch.stack(start)).cpu()))
    (expected_losses, expected), (losses, ours) = found
    assert losses == pytest.approx(expected_losses, rel=0.02 if "precision" in options else 1e-3)
    # Rounding is magnified by every step, in which a unit may be on or off.
    most = 0.3 if "precision" in options else 0.1 if compiled else 0.02
    assert float((ours - expected).norm()) < most * float(expected.norm())


def _on(batch: Any, device: str) -> Any:
    return type(batch)(*(part.to(device) for part in (batch.infosets, batch.weight, batch.target, batch.constant)))


@pytest.mark.parametrize("name", ["leduc", "fhp_limit", "hunl_pot"])
def test_traversals_are_of_the_same_distribution(name: str):
    """Mean regrets of the uniform strategy per betting node are the CPU's, to five standard errors."""
    traversals, counts, means, errors = 20_000, list[Tensor](), list[Tensor](), list[Tensor]()
    for device in ("cpu", "cuda"):
        game = load(name, device=device)
        draw = torch.Generator(device).manual_seed(0)
        found = SamplingEngine(game).external_sampling(Uniform(game), 0, traversals, draw).advantages
        node = game.locate(found.infosets)[0].cpu()
        target = found.targets.cpu().double()
        count = torch.bincount(node, minlength=game.tree.nodes)[:, None]
        sums, squares = (torch.zeros(game.tree.nodes, target.shape[1]).double() for _ in range(2))
        sums.index_add_(0, node, target)
        squares.index_add_(0, node, target.square())
        counts.append(count.flatten())
        means.append(sums / count)
        errors.append((squares / count - means[-1].square()).clamp(min=0).div(count).sqrt())
    often = (counts[0] > 1000) & (counts[1] > 1000)
    assert int(often.sum()) > 1
    within = 5 * (errors[0].square() + errors[1].square()).sqrt() + 1e-6
    assert bool(((means[0] - means[1]).abs() <= within)[often].all())


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if e not in FOR_THE_CPU])
def test_every_experiment_runs_there(tmp_path: Path, experiment: str):
    for name in (*([AFTER[experiment]] if experiment in AFTER else []), experiment):
        otherwise = [OTHERWISE[name]] if name in OTHERWISE else []
        asked = (f"experiment={name}", "scale=smoke", "device=cuda", f"output_dir={tmp_path}", *otherwise)
        done = call(*asked)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        assert len(results(tmp_path, asked)) or not planned(*asked).config.evaluation


SMALL = (
    "game=fhp", "game.ranks=5", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr",
    "network.width=16", "network.card_width=16", "algorithm.iterations=6", "algorithm.traversals=2000",
    "algorithm.strategies=asked", "algorithm.value.steps=100", "algorithm.value.batch_size=256",
    "algorithm.average.steps=100", "algorithm.average.batch_size=256", "algorithm.snapshot_every=3",
    "algorithm.value_capacity=50000", "algorithm.strategy_capacity=50000",
)  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_is_learned_is_about_as_good_as_on_the_cpu(tmp_path: Path, seeds: int):
    """To a third: no more than that nothing is badly wrong."""
    together = "seed=0" if seeds == 1 else "seeds=[0,1]"
    ends = {}
    for device in ("cpu", "cuda"):
        asked = (*SMALL, f"device={device}", f"output_dir={tmp_path}")
        assert executed(*asked, together) == records.FINISHED
        found = results(tmp_path, (*asked, f"seed={','.join(map(str, range(seeds)))}") if seeds > 1 else asked)
        last = found[(found.metric == "exploitability") & (found.step == 6)]
        ends[device] = last.groupby("readout").value.mean()
    assert dict(ends["cuda"]) == pytest.approx(dict(ends["cpu"]), rel=0.35)
