"""The tabular CFR family against OpenSpiel's solvers and against its own identities."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pyspiel
import pytest
import torch
from open_spiel.python.algorithms import cfr, discounted_cfr
from open_spiel.python.algorithms.exploitability import nash_conv as their_nash_conv

from repro.algorithms import solver as solvers
from repro.algorithms import tables
from repro.algorithms.mccfr import MCCFRConfig, MonteCarloCFR
from repro.algorithms.tabular import VARIANTS, solve, solver_of
from repro.common.errors import ReproError
from repro.config import ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.exploitability import exact_engine
from repro.games import load
from repro.policies import TabularPolicy, uniform
from tests.helpers.commands import configs
from tests.helpers.draws import random_table
from tests.helpers.training import advanced, built, config_of, measured, tables_of

PEERS = {
    "cfr": lambda game: cfr._CFRSolver(game, True, False, False),
    "cfr_simultaneous": lambda game: cfr._CFRSolver(game, False, False, False),
    "cfr_plus": lambda game: cfr._CFRSolver(game, True, True, True),
    "linear_cfr": discounted_cfr.LCFRSolver,
    "dcfr": discounted_cfr.DCFRSolver,
}


def solve_named(game, name, iterations, **more):
    changes = {"alternating": False} if name.endswith("_simultaneous") else {}
    return solve(game, name.removesuffix("_simultaneous"), iterations, **changes, **more)


@pytest.mark.parametrize("variant", PEERS)
def test_equals_openspiel_on_kuhn(variant):
    game, theirs = load("kuhn"), pyspiel.load_game("kuhn_poker")
    peer = PEERS[variant](theirs)
    for t, policy in solve_named(game, variant, 100):
        peer.evaluate_and_update_policy()
        if t in (1, 10, 100):
            assert nash_conv(game, policy) == pytest.approx(their_nash_conv(theirs, peer.average_policy()), rel=1e-9)


FASTER_PEERS = {"cfr": pyspiel.CFRSolver, "cfr_plus": pyspiel.CFRPlusSolver}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "at_100"),
    [
        ("cfr", 1e-9),
        ("cfr_plus", 1e-6),
        pytest.param("cfr_simultaneous", None, marks=pytest.mark.exhaustive),
        pytest.param("linear_cfr", 1e-4, marks=pytest.mark.exhaustive),
        pytest.param("dcfr", 1e-2, marks=pytest.mark.exhaustive),
    ],
)
def test_equals_openspiel_on_leduc(variant, at_100):
    """With OpenSpiel's C++ solvers where there are any; its Python ones take a fifth of a second per iteration.

    At 100 iterations the two sides may differ as much as a rounding error has grown by then, see the next test.
    """
    game, theirs = load("leduc"), pyspiel.load_game("leduc_poker")
    peer = FASTER_PEERS.get(variant, PEERS[variant])(theirs)
    for t, policy in solve_named(game, variant, 100 if at_100 else 40):
        peer.evaluate_and_update_policy()
        if t in (1, 10, 40, 100):
            theirs_now = pyspiel.nash_conv(theirs, _in_cpp(peer.average_policy()))
            assert nash_conv(game, policy) == pytest.approx(theirs_now, rel=at_100 if t == 100 else 1e-9)


@pytest.mark.parametrize(("variant", "grown"), [("linear_cfr", 1e-7), ("dcfr", 1e-5)])
def test_rounding_errors_grow(variant, grown):
    """Regrets near zero decide strategies: a change in the last digit of the first regrets moves NashConv at 100."""
    game = load("leduc")
    plain, nudged = (solver_of(game, VARIANTS[variant], seed=0) for _ in range(2))
    for t in range(100):
        plain.step()
        nudged.step()
        if t == 0:
            nudged.resume(1, nudged.nodes_touched, nudged.regrets * (1 + 1e-15), nudged.sums)
    exploitabilities = [nash_conv(game, s.average()) for s in (plain, nudged)]
    assert exploitabilities[0] != pytest.approx(exploitabilities[1], rel=grown)
    assert exploitabilities[0] == pytest.approx(exploitabilities[1], rel=1e-2)


def _in_cpp(policy):
    if isinstance(policy, pyspiel.Policy):
        return policy
    rows = policy.action_probability_array
    return pyspiel.TabularPolicy(
        {key: [(a, p) for a, p in enumerate(rows[i].tolist()) if p > 0] for key, i in policy.state_lookup.items()}
    )


@pytest.mark.parametrize(("variant", "bound"), [("linear_cfr", 0.02), ("dcfr", 0.001)])
def test_leduc_is_solved_in_1000_iterations(variant, bound):
    game = load("leduc")
    ((_, policy),) = solve(game, variant, 1000, every=1000)
    assert nash_conv(game, policy) < bound
    assert expected_value(game, policy)[0] == pytest.approx(-0.0856064, abs=bound)


def test_suit_isomorphism_changes_nothing():
    collapsed, by_card = load("leduc"), load("leduc", suit_isomorphism=False)
    runs = [solve(game, "dcfr", 20) for game in (collapsed, by_card)]
    for (_, few), (_, many) in zip(*runs, strict=True):
        assert nash_conv(collapsed, few) == pytest.approx(nash_conv(by_card, many), rel=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_regrets_and_sums_are_zero_where_illegal(variant):
    game = load("leduc")
    solver = solver_of(game, VARIANTS[variant], seed=0)
    for _ in range(5):
        solver.step()
    for table in (solver.regrets, solver.sums):
        assert (table[~game.legal] == 0).all()
    for policy in (solver.current(), solver.average()):
        assert policy.table.sum(1).numpy() == pytest.approx(1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_equals_uninterrupted(variant):
    game = load("leduc")
    whole, first, second = (solver_of(game, VARIANTS[variant], seed=3) for _ in range(3))
    for _ in range(7):
        whole.step()
    for _ in range(4):
        first.step()
    second.resume(first.iteration, first.nodes_touched, first.regrets, first.sums)
    for _ in range(3):
        second.step()
    assert torch.equal(whole.average().table, second.average().table)
    assert torch.equal(whole.current().table, second.current().table)
    assert whole.nodes_touched == second.nodes_touched


def test_a_pass_touches_every_history():
    # Kuhn: 6 deals times 9 betting nodes.
    solver = solver_of(load("kuhn"), VARIANTS["cfr"], seed=0)
    solver.step()
    assert solver.nodes_touched == 2 * 6 * 9


@pytest.mark.parametrize("variant", ["cfr", "cfr_plus", "linear_cfr", "dcfr", "es_mccfr", "os_mccfr"])
def test_the_file_in_conf_is_the_variant(variant):
    (config,) = configs(f"algorithm={variant}", "game=kuhn", multirun=False)
    given = asdict(config.algorithm)
    own = {"name", "iterations", "snapshot_every", "readouts", "traversals"}
    assert {k: v for k, v in given.items() if k not in own} == {
        k: v for k, v in asdict(VARIANTS[variant]).items() if k not in own
    }


@pytest.mark.parametrize(
    ("variant", "changes", "named"),
    [
        ("cfrr", {}, "cfrr"),
        ("cfr", {"traversals": 3}, "traversals"),
        ("dcfr", {"gamma": -1.0}, "gamma"),
        ("es_mccfr", {"traversals": 0}, "traversals"),
        ("os_mccfr", {"exploration": 1.5}, "exploration"),
        ("os_mccfr", {"exploration": None}, "exploration"),
        ("es_mccfr", {"exploration": 0.5}, "exploration"),
        ("cfr", {"gamma": "abc"}, "gamma"),
        ("cfr", {"gamma": float("nan")}, "gamma"),
        ("dcfr", {"gamma": 400.0}, "gamma"),
        ("dcfr", {"alpha": float("nan")}, "alpha"),
        ("dcfr", {"alpha": float("-inf")}, "alpha"),
        ("dcfr", {"beta": 400.0}, "beta"),
    ],
)
def test_bad_requests_are_refused_before_any_work(variant, changes, named):
    with pytest.raises(ReproError, match=named):
        solve(load("kuhn"), variant, 10, **changes)


# -- Monte Carlo -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("exploration", [0.1, 0.6, 1.0])
@pytest.mark.parametrize(("name", "parameters"), [("kuhn", {}), ("leduc", {"ranks": 2, "max_raises": 1})])
def test_outcome_sampling_is_unbiased(name, parameters, exploration):
    """Sampled regrets have the exact ones as their mean, and summed strategies the own reach times the strategy."""
    game, n = load(name, **parameters), 400_000
    table = 0.8 * random_table(game, 5) + 0.2 * game.uniform
    engine = exact_engine(game)
    values = engine.action_values(table)
    exact = (values - (values * table).sum(1, keepdim=True)) * game.legal
    policy = TabularPolicy(table)
    for player in range(2):
        mine = game.player_slice[player]
        found = SamplingEngine(game).outcome_sampling(
            policy, player, n, exploration, torch.Generator().manual_seed(player)
        )
        assert set(found.advantages.infosets.tolist()) <= set(range(mine.start, mine.stop))
        mean, error = _mean_per_infoset(game, found.advantages, n)
        assert ((mean - exact)[mine].abs() < 5 * error[mine] + 1e-9).all()
        assert float(found.values.mean()) == pytest.approx(
            float(engine.expected_values(table)[player]), abs=5 * float(found.values.std()) / n**0.5
        )
        sums = torch.zeros_like(table).index_add_(
            0, found.own_strategies.infosets, found.own_strategies.targets.double()
        )
        average = sums / sums.sum(1, keepdim=True)
        assert average[mine].numpy() == pytest.approx(table[mine].numpy(), abs=1e-6)
        # Within a round, the summed weights are in proportion to own reach.
        first_round = game.tree.round[game.infoset_node[mine]] == 0
        weight, reach = sums.sum(1)[mine][first_round] / n, engine.own_reach(table)[mine][first_round]
        assert (weight / reach).numpy() == pytest.approx(float((weight / reach).mean()), rel=0.05)


def _mean_per_infoset(game, samples, n):
    """Mean over traversals and its standard error, `[infosets, actions]` each."""
    targets = samples.targets.double()
    first = torch.zeros(game.legal.shape, dtype=torch.float64).index_add_(0, samples.infosets, targets) / n
    second = torch.zeros_like(first).index_add_(0, samples.infosets, targets**2) / n
    return first, ((second - first**2).clamp(min=0) / n).sqrt()


def test_outcome_sampling_counts_the_nodes_it_visits():
    """Kuhn with the uniform strategy: a deal, then two decisions, or three after check and bet (one in four)."""
    game, n = load("kuhn"), 40_000
    found = SamplingEngine(game).outcome_sampling(uniform(game), 0, n, 0.5, torch.Generator().manual_seed(0))
    assert found.nodes_touched / n == pytest.approx(3 + 1 / 4, abs=0.02)


MONTE_CARLO = {
    "es_mccfr": (pyspiel.ExternalSamplingMCCFRSolver, 100),
    "os_mccfr": (lambda game, seed: pyspiel.OutcomeSamplingMCCFRSolver(game, 0.6, seed), 100),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
@pytest.mark.parametrize("variant", MONTE_CARLO)
@pytest.mark.exhaustive
def test_monte_carlo_reaches_what_openspiel_does(name, variant):
    """NashConv of 8 seeds each after the same number of traversals: neither side lies wholly apart, means are close."""
    build, iterations = MONTE_CARLO[variant]
    # OpenSpiel tells suits apart, which makes more infosets to learn about.
    game, theirs = load(name, suit_isomorphism=name == "kuhn"), pyspiel.load_game(f"{name}_poker")
    ours, peers = [], []
    for seed in range(8):
        ((_, policy),) = solve(game, variant, iterations, every=iterations, seed=seed)
        ours.append(nash_conv(game, policy))
        solver = build(theirs, seed)
        for _ in range(iterations):
            solver.run_iteration()
        peers.append(pyspiel.exploitability(theirs, solver.average_policy()) * 2)
    assert min(ours) < max(peers)
    assert min(peers) < max(ours)
    spread = np.hypot(np.std(ours, ddof=1), np.std(peers, ddof=1)) / 8**0.5
    assert abs(np.mean(ours) - np.mean(peers)) < 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"linear": True}])
@pytest.mark.parametrize(("variant", "bound"), [("es_mccfr", 0.3), ("os_mccfr", 1.5)])
def test_monte_carlo_converges(variant, bound, changes):
    game = load("leduc")
    ((_, policy),) = solve(game, variant, 200, every=200, traversals=1000, **changes)
    assert nash_conv(game, policy) < bound


def test_linear_weights_are_the_iterations():
    game = load("kuhn")
    solvers = [
        MonteCarloCFR(game, MCCFRConfig(sampling="external", traversals=50, linear=linear), seed=1)
        for linear in (True, False)
    ]
    for solver in solvers:
        solver.step()
    assert torch.equal(solvers[0].sums, solvers[1].sums)
    # The same strategies follow: player 0's next traversals draw the same samples of player 1, and count them twice.
    first = [s.sums.clone() for s in solvers]
    for solver in solvers:
        solver.step()
    hers = game.player_slice[1]
    assert torch.allclose((solvers[0].sums - first[0])[hers], 2 * (solvers[1].sums - first[1])[hers])


@pytest.mark.parametrize(("variant", "iterations"), [("dcfr", 25), ("os_mccfr", 25)])
def test_a_run_that_was_stopped_continues_bitwise_equal(variant, iterations):
    """With iterations that are no multiple of those between snapshots."""
    readouts = {"average": ReadoutConfig("average"), "current": ReadoutConfig("current")}
    changes = {"name": variant, "iterations": iterations, "snapshot_every": 10, "readouts": readouts}
    game, config = load("leduc"), config_of(replace(VARIANTS[variant], **changes), seed=2)
    whole, stopped, continued = (built(game, config) for _ in range(3))
    assert whole.steps == 3
    advanced(whole, 3)
    stopped.step()
    continued.resume(stopped.saved())
    advanced(continued, 2)
    assert whole.iteration == continued.iteration == iterations
    ours, theirs = (tables_of(game, config, model) for model in (whole, continued))
    for name in ("average", "current"):
        assert torch.equal(ours[name].table, theirs[name].table)
    assert whole.counts() == continued.counts()
    assert whole.metrics.keys() == {"player_updates", "nodes_touched", "wall_seconds"}
    assert not torch.equal(ours["average"].table, ours["current"].table)
    # Read out, it is what the solver plays.
    for name, policy in (("average", whole.solver.average()), ("current", whole.solver.current())):
        torch.testing.assert_close(ours[name].table, policy.table, rtol=0, atol=1e-15)
        assert measured(game, config, whole)[name]["nash_conv"] == nash_conv(game, policy)


def test_time_spent_goes_on_with_a_run():
    config = config_of(
        replace(
            VARIANTS["cfr"], name="cfr", iterations=9, snapshot_every=3, readouts={"average": ReadoutConfig("average")}
        )
    )
    game = load("leduc")
    stopped, continued, older = (built(game, config) for _ in range(3))
    stopped.step()
    saved = stopped.saved()
    assert stopped.cpu_seconds > 0
    continued.resume(saved)
    # A checkpoint of an earlier version does not have it: then it stays unknown.
    older.resume({key: value for key, value in saved.items() if key != "cpu_seconds"})
    for model in (continued, older):
        model.step()
        assert model.wall_seconds > stopped.wall_seconds
    assert continued.cpu_seconds > stopped.cpu_seconds
    assert older.cpu_seconds is None


def test_a_snapshot_is_of_its_moment():
    config = config_of(replace(VARIANTS["es_mccfr"], name="es", iterations=4, snapshot_every=2, readouts={}))
    model = config.algorithm.build(load("kuhn"), config)
    model.step()
    state = model.snapshot().state
    before = {name: state[name].clone() for name in ("sums", "regrets")}
    model.step()
    for name, table in before.items():
        assert torch.equal(state[name], table)
        assert not torch.equal(model.snapshot().state[name], table)


def test_regrets_of_large_tables_are_not_in_snapshots(monkeypatch):
    readouts = {"average": ReadoutConfig("average"), "now": ReadoutConfig("current")}
    config = config_of(replace(VARIANTS["cfr"], name="cfr", iterations=2, snapshot_every=2, readouts=readouts))
    game = load("leduc")
    assert built(game, config).state().keys() == {"centres", "sums", "regrets"}
    for module in (solvers, tables):
        monkeypatch.setattr(module, "MOST_ROWS_WITH_REGRETS", 287)
    with pytest.raises(ReproError, match=r"algorithm\.readouts\.now\.kind is current; in the game leduc it must be"):
        built(game, config)
    del config.algorithm.readouts["now"]
    model = built(game, config)
    model.step()
    assert model.state().keys() == {"centres", "sums"}
    assert model.state()["sums"].dtype == torch.float32
    found = measured(game, config, model)["average"]["nash_conv"]
    assert found == pytest.approx(nash_conv(game, model.solver.average()), rel=1e-6)
