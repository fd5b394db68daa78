"""The Kuhn tutorial's algorithm, and the figure about it."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from paper_figures import kuhn
from repro.algorithms.kuhn_post import Greedy, KuhnPost, KuhnPostConfig, strategy_network
from repro.common.errors import ReproError
from repro.config import ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.measures import Strategy, strategy_metric
from repro.figures import claims as claims_of
from repro.games import load
from repro.plans.planning import plan
from repro.policies import TabularPolicy, random_policy, uniform
from tests.helpers.commands import configs
from tests.helpers.figures import verdicts
from tests.helpers.training import advanced, config_of, measured, tables_of


def model(payoffs="printed", perspective="player_0", seed=0, iterations=40, **more):
    readouts = {"policy": ReadoutConfig("policy"), "greedy": ReadoutConfig("greedy")}
    config = KuhnPostConfig(
        name="post", iterations=iterations, snapshot_every=10, readouts=readouts, payoffs=payoffs,
        perspective=perspective, **more,
    )  # fmt: skip
    return KuhnPost(load("kuhn"), config, seed)


def played(made):
    """What each read-out plays now."""
    return tables_of(made.game, config_of(made.algorithm, seed=made.seed), made)


# -- the post's own code, re-read in plain Python ----------------------------------------------------------------------

HISTORIES = {"": 0, "c": 1, "b": 2, "cb": 4}


def printed_payoff(cards, history, bets, player):
    winner = 1 - player if history.endswith("f") else 0 if cards[0] > cards[1] else 1
    return sum(bets) - bets[0] if winner == 0 else -(sum(bets) - bets[1])


def printed_traverse(strategy_of, cards, history="", bets=(1, 1), player=0):
    """Samples (card, history, regrets, strategy) in the post's order, and the value, as `traverse` has them."""
    if history in ("cc", "bc", "cbc", "bf", "cbf"):
        return [], printed_payoff(cards, history, bets, player)
    strategy, samples, utils = strategy_of(cards[player], history), [], []
    for action in "fc" if history in ("b", "cb") else "cb":
        put_in = action == "b" or (action in "bc" and history in ("b", "cb"))
        after = tuple(b + (put_in and i == player) for i, b in enumerate(bets))
        # Folding after "b" or "cb" adds nothing: the post tests for "b" and "c" only.
        below, util = printed_traverse(strategy_of, cards, history + action, after, 1 - player)
        samples += below
        utils.append(util)
    value = sum(p * u for p, u in zip(strategy, utils, strict=True))
    return [*samples, (cards[player], history, [u - value for u in utils], strategy)], value


@pytest.mark.parametrize("cards", [[0, 1], [2, 0], [1, 2], [2, 1]])
def test_traversal_is_the_printed_one(cards):
    made = model(seed=4)
    x = torch.tensor([[cards[made._player[n]], made._number[n]] for n in made._order])
    regrets, strategies = made._traverse(cards, x)

    def strategy_of(card, history):
        output = made.networks[0](torch.tensor([[card, HISTORIES[history]]]).float(), torch.ones(1, 2))
        positive = output.clamp(min=0).flatten()
        return (positive / positive.sum()).tolist() if positive.sum() > 0 else [0.5, 0.5]

    samples, _ = printed_traverse(strategy_of, cards)
    assert x.tolist() == [[card, HISTORIES[history]] for card, history, _, _ in samples]
    assert regrets.numpy() == pytest.approx(torch.tensor([s[2] for s in samples]).numpy(), abs=1e-6)
    assert strategies.numpy() == pytest.approx(torch.tensor([s[3] for s in samples]).numpy(), abs=1e-6)


def test_learning_is_the_printed_one():
    """Deals, targets and steps of whole iterations, with torch's Adam on the samples of the printed traversal."""
    made = model(seed=5)
    twins = [torch_twin(network) for network in made.networks]
    optimizers = [torch.optim.Adam(t.parameters(), lr=1e-3) for t in twins]
    dealt = []
    for iteration in range(1, 7):
        made.iteration = iteration
        cards = np.random.default_rng((made.seed, iteration)).permutation(3)[:2].tolist()
        dealt.append(tuple(cards))

        def strategy_of(card, history):
            with torch.no_grad():
                positive = twins[0](torch.tensor([card, HISTORIES[history]]).float()).clamp(min=0)
            return (positive / positive.sum()).tolist() if positive.sum() > 0 else [0.5, 0.5]

        samples, _ = printed_traverse(strategy_of, cards)
        for twin, optimizer, which, last in zip(
            twins, optimizers, (2, 3), (nn.Identity(), nn.Softmax(-1)), strict=True
        ):
            for sample in samples:
                x = torch.tensor([sample[0], HISTORIES[sample[1]]]).float()
                loss = ((last(twin(x)) - torch.tensor(sample[which])) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        made.advance()
    assert len(set(dealt)) > 2
    for twin, network in zip(twins, made.networks, strict=True):
        for p, q in zip(twin.parameters(), network.parameters(), strict=True):
            assert torch.allclose(p, q, atol=1e-5)


def torch_twin(network):
    """The same layers and weights, by torch alone."""
    layers = [nn.Linear(m.in_features, m.out_features) if isinstance(m, nn.Linear) else nn.ReLU() for m in network.body]
    twin = nn.Sequential(*layers)
    twin.load_state_dict(network.body.state_dict())
    return twin


def test_corrections_turn_the_two_errors_off():
    made, printed = model("kuhn", "own"), model()
    fold = next(n for n in range(made.game.tree.nodes) if made.game.tree.histories[n][0] == (2, 0))
    assert made._payoff(fold, [0, 2]) == 1
    # The folder gets the chips of the one who bet.
    assert printed._payoff(fold, [0, 2]) == -2
    cards = [2, 0]
    x = torch.tensor([[cards[made._player[n]], made._number[n]] for n in made._order])
    own, hers = made._traverse(cards, x)[0], model("kuhn", "player_0")._traverse(cards, x)[0]
    signs = [-1.0 if made._player[n] == 1 else 1.0 for n in made._order]
    assert torch.equal(own, hers * torch.tensor(signs)[:, None])


def test_resumed_equals_uninterrupted():
    whole, first, second = (model("kuhn", "own", seed=2) for _ in range(3))
    advanced(whole, 4)
    advanced(first, 2)
    second.load_state_dict(first.state_dict())
    second.resume(first.saved())
    advanced(second, 2)
    for name in ("policy", "greedy"):
        assert torch.equal(played(whole)[name].table, played(second)[name].table)
    assert whole.nodes_touched == second.nodes_touched == 40 * 9


def test_greedy_is_the_most_probable_action():
    made = model()
    made.step()
    mixed, pure = played(made)["policy"].table, played(made)["greedy"].table
    assert torch.equal(mixed.argmax(1), pure.argmax(1))
    assert set(pure.flatten().tolist()) == {0.0, 1.0}
    assert (pure[~made.game.legal] == 0).all()


def test_most_networks_that_were_never_trained_win_half_of_the_games():
    half, low, high = kuhn.never_trained(40)
    assert half > 20
    assert low < 0.5 < high
    table = Greedy.policy(load("kuhn"), strategy_network(64)).table
    assert set(table.flatten().tolist()) == {0.0, 1.0}


def test_the_strategy_itself_is_measured():
    made = model()
    made.step()
    found = measured(made.game, config_of(made.algorithm), made, Strategy())
    for name, policy in played(made).items():
        cells = made.game.legal.nonzero().tolist()
        expected = {strategy_metric(made.game, i, a): float(policy.table[i, a]) for i, a in cells}
        assert found[name] == pytest.approx(expected, abs=1e-12)
        assert len(found[name]) == 24


def test_divergence_names_iteration_and_key():
    made = model(learning_rate=1e30)
    with pytest.raises(ReproError, match=r"iteration \d+; algorithm.learning_rate"):
        made.step()


@pytest.mark.parametrize("algorithm", ["kuhn_post", "kuhn_post_corrected"])
def test_the_paper_scale_is_the_printed_setting(algorithm):
    """20,000 iterations, those of the post's results; its default argument is 2,000."""
    (config,) = configs("experiment=kuhn", f"algorithm={algorithm}", "scale=paper", multirun=False)
    given = config.algorithm
    assert (given.iterations, given.width, given.learning_rate) == (20_000, 64, 1e-3)
    assert (given.payoffs, given.perspective) == (
        ("printed", "player_0") if algorithm == "kuhn_post" else ("kuhn", "own")
    )


def test_it_plays_kuhn_only():
    with pytest.raises(ReproError, match="leduc"):
        plan(["algorithm=kuhn_post", "game=leduc"], multirun=False)


# -- the figure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_the_family_is_of_equilibria(alpha):
    policy = kuhn.equilibrium(alpha)
    assert expected_value(kuhn.kuhn(), policy) == pytest.approx((-1 / 18, 1 / 18), abs=1e-15)
    assert nash_conv(kuhn.kuhn(), policy) == pytest.approx(0, abs=1e-15)


def test_win_rate_agrees_with_play():
    game = kuhn.kuhn()
    for seed in range(3):
        policy = random_policy(game, torch.Generator().manual_seed(seed))
        won = SamplingEngine(game).play([policy, policy], 200_000, torch.Generator().manual_seed(seed))
        assert kuhn.win_rate(policy) == pytest.approx(float((won > 0).double().mean()), abs=0.005)


def test_equilibrium_win_rates():
    """By hand: player 0 wins 25/54 at alpha = 0, more with every bluff."""
    rates = [kuhn.win_rate(kuhn.equilibrium(a)) for a in (0.0, 0.1, 0.2, 1 / 3)]
    assert rates[0] == pytest.approx(25 / 54)
    assert all(low < high for low, high in pairwise(rates))


def tidy(policies, scale="laptop"):
    """Data in which every seed ends with the given policy."""
    game = kuhn.kuhn()
    rows = []
    for algorithm, policy in policies.items():
        for seed in range(3):
            exploitability = 500 * nash_conv(game, policy)
            metrics = {"exploitability": exploitability, "nodes_touched": 100.0}
            metrics |= {
                strategy_metric(game, i, a): float(policy.table[i, a]) for i, a in game.legal.nonzero().tolist()
            }
            rows += [("kuhn", scale, algorithm, seed, metric, step, value)
                     for metric, value in metrics.items() for step in (10, 20)]  # fmt: skip
    return pd.DataFrame(rows, columns=["target", "scale", "readout", "seed", "metric", "step", "value"])


def all_playing(policy):
    return dict.fromkeys(kuhn.NAMES, policy)


def test_claims_of_an_equilibrium_hold():
    found = verdicts(kuhn, tidy(all_playing(kuhn.equilibrium(0.2))))
    # Whatever was learned, Kuhn poker is not symmetric, and the calling station wins half of its hands.
    assert found.pop("symmetric") == claims_of.DID_NOT_HOLD
    assert found.pop("half_means_equilibrium") == claims_of.DID_NOT_HOLD
    assert set(found.values()) == {claims_of.HELD}


def test_claims_of_a_bad_strategy_do_not():
    found = verdicts(kuhn, tidy(all_playing(uniform(kuhn.kuhn()))))
    # What equilibria do does not depend on what was learned.
    assert found.pop("half_at_equilibrium") == claims_of.HELD
    assert set(found.values()) == {claims_of.DID_NOT_HOLD}


def test_a_value_is_judged_by_its_interval_on_both_sides():
    """Runs that get it in the mean only decide nothing."""
    data = tidy({"post": kuhn.equilibrium(0.2)})
    other = tidy({"post": uniform(kuhn.kuhn())})
    data = pd.concat([data.query("seed > 0"), other.query("seed == 0")])
    claim = kuhn._value(data, "post", smoke=False)
    assert claim.verdict == claims_of.UNDECIDED
    assert claim.measured is not None
    assert claim.measured.low < -1000 / 18 < claim.measured.high


@pytest.mark.parametrize(("mixed", "verdict"), [(0.029, claims_of.HELD), (0.031, claims_of.DID_NOT_HOLD)])
def test_an_equilibrium_is_what_10_milli_antes_cannot_exploit(mixed, verdict):
    policy = TabularPolicy((1 - mixed) * kuhn.equilibrium(0.2).table + mixed * uniform(kuhn.kuhn()).table)
    assert (500 * nash_conv(kuhn.kuhn(), policy) < 10) == (verdict == claims_of.HELD)
    assert kuhn._is_equilibrium(tidy({"post": policy}), "post", smoke=False).verdict == verdict


def test_smoke_is_not_judged():
    found = verdicts(kuhn, tidy(all_playing(uniform(kuhn.kuhn())), scale="smoke"))
    assert found.pop("half_at_equilibrium") == claims_of.HELD
    assert found.pop("symmetric") == claims_of.DID_NOT_HOLD
    assert set(found.values()) == {claims_of.NOT_TESTABLE}


def test_final_policies_are_those_of_the_last_step():
    game = kuhn.kuhn()
    early, late = (random_policy(game, torch.Generator().manual_seed(s)) for s in range(2))
    data = pd.concat([tidy({"post": early}).query("step == 10"), tidy({"post": late}).query("step == 20")])
    for policy in kuhn.final_policies(data, "post"):
        assert policy.table.numpy() == pytest.approx(late.table.numpy())


@pytest.mark.slow
def test_it_draws_and_tabulates(tmp_path):
    data = tidy(all_playing(TabularPolicy(0.5 * uniform(kuhn.kuhn()).table + 0.5 * kuhn.equilibrium(0.1).table)))
    kuhn.draw(data).savefig(tmp_path / "kuhn.png")
    assert (tmp_path / "kuhn.png").stat().st_size > 10_000
    assert kuhn.table(data).count("\n") == 2 + len(kuhn.NAMES) + 2
    claims_of.write(kuhn.claims(data), tmp_path / "claims.json")
    assert len(json.loads((tmp_path / "claims.json").read_text())) == len(kuhn.claims(data))
