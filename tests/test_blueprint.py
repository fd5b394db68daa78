"""Blueprints: strategies of a card abstraction as policies of the full game, as runs, as files, as players."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from repro import match, run
from repro.abstraction import Abstraction, abstract_game, abstraction, streets
from repro.algorithms.mccfr import AbstractMCCFR
from repro.algorithms.registry import build
from repro.algorithms.tabular import BlueprintCFR, TabularCFR
from repro.config import result_config, settings
from repro.errors import ReproError
from repro.evaluation.head_to_head import play_match
from repro.evaluation.units import milli_units
from repro.games import Game, load
from repro.games.holdem import HoldemCards
from repro.policies import Policy, load_strategy
from repro.policies.blueprint import Blueprint, is_blueprint, load_blueprint
from repro.policies.ensemble import load_networks
from repro.policies.network import Uniform
from repro.seeding import generator

GAME = "hunl_pot:ranks=6:suits=3:stack=1000"
BUCKETS = 20


@lru_cache
def small_game() -> Game:
    return match.read_game(GAME)


def composed(*overrides: str) -> Any:
    """The configuration of a run on the small game."""
    name, *parameters = GAME.split(":")
    given = [f"game={name}", *(f"game.{p}" for p in parameters), "algorithm=es_mccfr", f"algorithm.buckets={BUCKETS}"]
    (config,) = run.plan(
        [*given, "algorithm.linear=true", "algorithm.traversals=300", "algorithm.evaluate_every=5", *overrides],
        multirun=False,
    )
    return run.without_hydra(config)


def model_of(*overrides: str) -> BlueprintCFR:
    model = build(small_game(), settings(composed(*overrides)))
    assert isinstance(model, BlueprintCFR)
    return model


def solver_in(model: BlueprintCFR) -> AbstractMCCFR:
    assert isinstance(model.solver, AbstractMCCFR)
    return model.solver


@lru_cache
def trained(iterations: int, buckets: int = BUCKETS) -> BlueprintCFR:
    model = model_of(f"algorithm.iterations={iterations}", f"algorithm.buckets={buckets}")
    for _ in range(model.steps):
        model.training_step(None, 0)
    return model


def blueprint_of(model: BlueprintCFR) -> Blueprint:
    solver = solver_in(model)
    return Blueprint(solver.abstraction, solver.sums)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the run of 40 iterations leaves as its artifact, written as `repro.training` writes it."""
    path = tmp_path_factory.mktemp("stored") / BlueprintCFR.ARTIFACT
    torch.save({"config": result_config(composed("algorithm.iterations=40")), **trained(40).artifact()}, path)
    return path


def changed(path: Path, folder: Path, **changes: Any) -> Path:
    """A copy of a stored blueprint with other entries; None leaves one out."""
    entries = {**torch.load(path, weights_only=True), **changes}
    torch.save({k: v for k, v in entries.items() if v is not None}, folder / "changed.pt")
    return folder / "changed.pt"


def dealt_infosets(game: Game, deals: int, seed: int = 0) -> Tensor:
    """Infosets of every decision of the tree, with dealt cards."""
    cells = game.cards.deal(deals, torch.Generator().manual_seed(seed)).cells
    node = (game.tree.player >= 0).nonzero().flatten()
    return (game.first_infoset[node] + cells[:, game.tree.player[node], game.tree.round[node]]).flatten()


def random_weights(made: Abstraction) -> Tensor:
    """Of some size, none where illegal, and none at all in some rows."""
    draw = torch.Generator().manual_seed(0)
    legal = made.abstract.legal
    some = torch.rand(len(legal), 1, generator=draw) < 0.7
    return torch.rand(legal.shape, generator=draw) * 1000 * legal * some


# -- the policy --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_probabilities_are_the_weights_of_the_row_in_proportion():
    game = small_game()
    made = abstraction(game, BUCKETS)
    weights = random_weights(made)
    infosets = dealt_infosets(game, 5)
    found = Blueprint(made, weights).probabilities(infosets)
    empty = 0
    for row, legal, probabilities in zip(made.rows(infosets), game.legal_at(infosets), found, strict=True):
        of_row = weights[row]
        expected = of_row / of_row.sum() if bool((of_row > 0).any()) else legal / legal.sum()
        empty += int(not bool((of_row > 0).any()))
        torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-6)
        assert bool((probabilities[~legal] == 0).all())
    assert 0.1 < empty / len(infosets) < 0.5
    assert found.dtype == weights.dtype
    assert len(Blueprint(made, weights).probabilities(infosets[:0])) == 0


@pytest.mark.parametrize("round_", range(4))
def test_a_bucket_plays_alike_and_others_play_otherwise(round_):
    game = small_game()
    made = abstraction(game, BUCKETS)
    policy = Blueprint(made, random_weights(made) + 1.0 * made.abstract.legal)
    cells = game.cards.deal(400, torch.Generator().manual_seed(1)).cells[:, 0, round_]
    assert made.buckets is not None
    bucket = made.buckets.of_cells(round_, cells)
    nodes = ((game.tree.round == round_) & (game.tree.player >= 0)).nonzero().flatten().tolist()
    for node in nodes[:10]:
        played = policy.probabilities(game.first_infoset[node] + cells).double()
        together = torch.cat([bucket[:, None].double(), played], 1).unique(dim=0)
        assert len(together) == len(bucket.unique()) > 10
        # Rows without weights play one strategy, the others each its own.
        assert len(played.unique(dim=0)) > 5


def test_without_buckets_rows_are_infosets():
    game = load("fhp", ranks=4, suits=2)
    lossless = abstraction(game, None)
    weights = random_weights(lossless).double()
    found = Blueprint(lossless, weights).probabilities(torch.arange(game.infosets))
    total = weights.sum(1, keepdim=True)
    torch.testing.assert_close(found, torch.where(total > 0, weights / total, game.uniform))


# -- the run -----------------------------------------------------------------------------------------------------------


def test_games_of_several_boards_are_solved_for_a_blueprint():
    assert type(model_of()) is BlueprintCFR
    config = settings(composed("algorithm.buckets=5"))
    assert type(build(load("fhp", ranks=4, suits=2), config)) is TabularCFR


@pytest.mark.slow
def test_it_beats_who_knows_less():
    """The uniform policy, a blueprint that has hardly been trained, and one that does not look at the board."""
    game, best = small_game(), blueprint_of(trained(40))
    others: dict[str, Policy] = {
        "uniform": Uniform(game),
        "untrained": blueprint_of(trained(1)),
        "blind": blueprint_of(trained(40, 1)),
    }
    for name, other in others.items():
        against = play_match(game, best, other, 60_000, torch.Generator().manual_seed(0))
        assert against.interval[0] > 0, name
        if name == "uniform":
            assert against.interval[0] > 0.5 * game.chips_per_unit
    # In its own game it is no better than itself.
    itself = play_match(game, best, best, 20_000, torch.Generator().manual_seed(1))
    assert itself.interval[0] < 0 < itself.interval[1]


@pytest.mark.slow
def test_what_a_run_measures():
    model = trained(40)
    seen = sum(bool((row > 0).any()) for row in solver_in(model).sums)
    assert 0 < seen < solver_in(model).abstraction.abstract.infosets
    assert model.metrics["es_mccfr"]["infosets_seen"] == seen
    assert model.metrics["es_mccfr"]["nodes_touched"] == solver_in(model).nodes_touched > 0
    assert not {"nash_conv", "exploitability"} & set(model.metrics["es_mccfr"])
    assert model.policies == {}


def test_the_artifact_is_the_summed_strategies_and_the_centres():
    model = trained(40)
    solver, left = solver_in(model), model.artifact()
    assert set(left) == {"weights", "centres"}
    assert left["weights"].dtype == torch.float32
    torch.testing.assert_close(left["weights"].double(), solver.sums, rtol=1e-6, atol=0)
    assert left["weights"].shape == (solver.abstraction.abstract.infosets, 3)
    assert isinstance(solver.abstraction.buckets, streets.StreetBuckets)
    assert all(torch.equal(a, b) for a, b in zip(left["centres"], solver.abstraction.buckets.centres, strict=True))


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one():
    straight = trained(10)
    half = model_of("algorithm.iterations=10")
    half.training_step(None, 0)
    assert half.iteration == 5
    checkpoint: dict[str, Any] = {}
    half.on_save_checkpoint(checkpoint)
    file = io.BytesIO()
    torch.save(checkpoint, file)
    # What goes on must not change what was saved.
    half.training_step(None, 0)
    file.seek(0)
    resumed = model_of("algorithm.iterations=10")
    resumed.on_load_checkpoint(torch.load(file, weights_only=True))
    assert resumed.iteration == 5
    resumed.training_step(None, 0)
    for other in (half, resumed):
        assert torch.equal(solver_in(other).regrets, solver_in(straight).regrets)
        assert torch.equal(solver_in(other).sums, solver_in(straight).sums)
        assert torch.equal(other.artifact()["weights"], straight.artifact()["weights"])
        without_clock = ({**m.metrics["es_mccfr"], "wall_seconds": 0.0} for m in (other, straight))
        assert next(without_clock) == next(without_clock)
    assert not torch.equal(solver_in(straight).sums, solver_in(trained(40)).sums)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["+algorithm.readouts.now={kind: current}"],
            r"algorithm\.readouts\.now\.kind is current; in the game hunl_pot it must be average\.",
        ),
        (["algorithm.buckets=null"], "game hunl_pot has 4,836,522,336 infosets; tables can list 134,217,728 at most"),
        (["algorithm.buckets=14641"], r"algorithm\.buckets is 14641; allowed are 1 to 14,640"),
        (
            ["algorithm.sampling=outcome", "algorithm.exploration=0.6"],
            "algorithm.sampling is outcome; on Hold'em games it must be external",
        ),
    ],
)
def test_runs_that_cannot_be_done_are_refused(overrides, said):
    with pytest.raises(ReproError, match=said):
        model_of(*overrides)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_stored_blueprint_plays_as_the_solver_does(stored, monkeypatch):
    game, solver = small_game(), solver_in(trained(40))
    infosets = dealt_infosets(game, 20)
    monkeypatch.setattr(streets, "cluster", lambda *_: pytest.fail("it looked for buckets"))
    policy = load_blueprint(match.read_game(GAME), stored)
    sums = solver.sums[solver.abstraction.rows(infosets)]
    total = sums.sum(1, keepdim=True)
    legal = game.legal_at(infosets)
    expected = torch.where(total > 0, sums / total, legal / legal.sum(1, keepdim=True, dtype=torch.float64))
    assert bool((total == 0).any())
    found = policy.probabilities(infosets)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(blueprint_of(trained(40)).probabilities(infosets), expected)
    # Mapped into memory, not read.
    assert str(stored) in Path("/proc/self/maps").read_text()


def test_the_file_says_what_the_buckets_are(stored, tmp_path):
    game = small_game()
    backwards = [c.flip(0) for c in torch.load(stored, weights_only=True)["centres"]]
    one = load_blueprint(game, stored)
    other = load_blueprint(game, changed(stored, tmp_path, centres=backwards))
    infosets = dealt_infosets(game, 20)
    assert not torch.equal(one.probabilities(infosets), other.probabilities(infosets))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "named"),
    [
        ("hunl_pot:ranks=6:suits=3:stack=900", "'stack': 900"),
        ("hunl_pot:ranks=6:suits=2:stack=1000", "'suits': 2"),
        ("hunl_pot", "'ranks': 13"),
        ("fhp:ranks=6:suits=3", "fhp"),
        ("leduc", "leduc"),
    ],
)
def test_a_blueprint_for_another_game_is_refused(stored, other, named):
    said = rf"blueprint\.pt holds a strategy for game hunl_pot with .*'ranks': 6.*, not for .*{named}"
    with pytest.raises(ReproError, match=said):
        load_blueprint(match.read_game(other), stored)


def test_weights_that_do_not_fit_are_refused(stored, tmp_path):
    weights = torch.load(stored, weights_only=True)["weights"]
    shapes = [weights[:-1], weights[:, :2], weights.flatten(), weights[None]]
    numbers = [weights.clone().index_fill_(0, torch.tensor([7]), value) for value in (-1.0, torch.nan, torch.inf)]
    for wrong in (*shapes, *numbers):
        with pytest.raises(ReproError, match=r"changed\.pt does not hold one weight, none below 0"):
            load_blueprint(small_game(), changed(stored, tmp_path, weights=wrong.clone()))
    centres = torch.load(stored, weights_only=True)["centres"]
    with pytest.raises(ReproError, match=r"changed\.pt does not hold one weight"):
        load_blueprint(small_game(), changed(stored, tmp_path, centres=[centres[0], centres[1], centres[2][:-1]]))


@pytest.mark.parametrize("wrong", [[], "two rounds", "five columns", 3, None])
def test_centres_that_are_none_are_refused(stored, tmp_path, wrong):
    centres = torch.load(stored, weights_only=True)["centres"]
    if wrong == "two rounds":
        wrong = centres[:2]
    elif wrong == "five columns":
        wrong = [c[:, :5].clone() for c in centres]
    path = changed(stored, tmp_path, centres=wrong)
    with pytest.raises(ReproError, match=r"changed\.pt (holds no such buckets|is not the blueprint\.pt)"):
        load_blueprint(small_game(), path)


@pytest.mark.parametrize("missing", ["weights", "config"])
def test_a_file_that_lacks_something_is_refused(stored, tmp_path, missing):
    path = changed(stored, tmp_path, **{missing: None})
    with pytest.raises(ReproError, match=r"changed\.pt is not the blueprint\.pt of a finished run\."):
        load_blueprint(small_game(), path)


@pytest.mark.parametrize("content", [torch.zeros(2), {"value": [torch.zeros(2)], "average": [], "config": {}}, [1, 2]])
def test_files_of_other_kinds_are_no_blueprints(tmp_path, content):
    path = tmp_path / "networks.pt"
    torch.save(content, path)
    assert not is_blueprint(path)
    with pytest.raises(ReproError, match=r"networks\.pt is not the blueprint\.pt of a finished run\."):
        load_blueprint(small_game(), path)


@pytest.mark.parametrize("text", ["", "infoset,fold\n1,2\n", None])
def test_what_no_tensor_file_is_is_no_blueprint(tmp_path, text):
    path = tmp_path / "blueprint.pt"
    if text is not None:
        path.write_text(text)
    assert not is_blueprint(path)
    with pytest.raises(ReproError, match=r"is not the blueprint\.pt of a finished run\."):
        load_blueprint(small_game(), path)


def test_a_stored_blueprint_is_one_and_nothing_else(stored):
    assert is_blueprint(stored)
    assert is_blueprint(str(stored))
    with pytest.raises(ReproError, match=r"is not the networks\.pt of a finished run"):
        load_networks(small_game(), stored)
    with pytest.raises(ReproError, match=r"cannot be read as a strategy\.csv"):
        load_strategy(load("leduc"), stored)


# -- the command -------------------------------------------------------------------------------------------------------


def played(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[float, float, float, str]:
    """Mean, its interval, and everything that was printed."""
    assert match.main([str(a) for a in arguments]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    (sampled,) = [line for line in shown.out.splitlines() if "95% CI" in line]
    low, high = sampled.split("[")[1].split("]")[0].split(", ")
    return float(sampled.split()[1]), float(low), float(high), shown.out


@pytest.mark.slow
def test_the_command_plays_blueprints(stored, capsys):
    game = small_game()
    mean, low, high, text = played(capsys, GAME, stored, "uniform", "--hands", 8000, "--seed", 3)
    direct = play_match(game, load_blueprint(game, stored), Uniform(game), 8000, generator(3, "match"))
    # Whole thousandths of a big blind are printed.
    assert mean == pytest.approx(milli_units(game, direct.mean), abs=0.51)
    assert [low, high] == pytest.approx([milli_units(game, bound) for bound in direct.interval], abs=0.51)
    assert low > 0
    assert "8000 hands" in text
    assert "mbb/g" in text
    assert "exact" not in text
    # Seats exchanged, it loses as much, and against itself it wins nothing.
    assert played(capsys, GAME, "uniform", stored, "--hands", 8000)[2] < 0
    _, low, high, _ = played(capsys, GAME, stored, stored, "--hands", 8000)
    assert low < 0 < high


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["hunl_pot:ranks=6:suits=3", "{file}", "uniform"], ["A: ", "holds a strategy for game hunl_pot"]),
        (["leduc", "uniform", "{file}"], ["B: ", "holds a strategy for game hunl_pot", "not for leduc"]),
        ([GAME, "{file}:average", "uniform"], ["A: ", "is a blueprint, which is an average as it is"]),
        ([GAME, "blueprint", "uniform"], ["A is 'blueprint'", "a blueprint.pt"]),
        ([GAME, "uniform", "none/blueprint.pt"], ["B is 'none/blueprint.pt'", "no such file"]),
    ],
)
def test_the_command_refuses_in_one_sentence_before_playing(arguments, told, stored, capsys, monkeypatch):
    monkeypatch.setattr(match, "play_match", lambda *_, **__: pytest.fail("it played"))
    assert match.main([a.format(file=stored) for a in arguments]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    for part in told:
        assert part in shown.err


def test_the_small_game_has_buckets_to_make():
    """What the tests above assume: more cells than tables can hold, of four rounds."""
    game = small_game()
    assert isinstance(game.cards, HoldemCards)
    assert not game.listed
    assert not game.cards.one_board
    assert game.cards.cells[1] == 14_640


@pytest.mark.slow
def test_a_resumed_run_keeps_its_buckets(monkeypatch):
    """Clustered elsewhere, the buckets may come in another order; the tables are of those they were made for."""
    first = model_of("algorithm.iterations=4", "algorithm.evaluate_every=1")
    for _ in range(2):
        first.training_step(None, 0)
    found = streets.find_buckets

    def reversed_buckets(cards: HoldemCards, buckets: int) -> streets.StreetBuckets:
        return streets.StreetBuckets(cards, [c.flip(0) for c in found(cards, buckets).centres])

    monkeypatch.setattr(abstract_game, "find_buckets", reversed_buckets)
    second = model_of("algorithm.iterations=4", "algorithm.evaluate_every=1")
    infosets = dealt_infosets(small_game(), 50)
    wanted = solver_in(first).abstraction.rows(infosets)
    assert not torch.equal(solver_in(second).abstraction.rows(infosets), wanted)
    second.resume(first.saved())
    assert torch.equal(solver_in(second).abstraction.rows(infosets), wanted)
    for model in (first, second):
        model.training_step(None, 0)
    assert torch.equal(first.solver.regrets, second.solver.regrets)
