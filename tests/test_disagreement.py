"""How far two average strategies are apart: against an enumeration of all deals and betting sequences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from repro.config import NetworkConfig
from repro.engine.holdem_form import HoldemForm
from repro.evaluation import disagreement as module
from repro.evaluation.disagreement import disagreement
from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import value_network
from repro.policies import TabularPolicy, random_policy, uniform
from repro.policies.base import HandStrategies, Mixture, deterministic_policy
from repro.policies.ensemble import NetworkSampling
from repro.policies.network import NetworkPolicy, opening_infosets
from repro.policies.regret_matching import regret_matching
from tests.helpers.draws import seeded
from tests.helpers.holdem import average_strategy, cards_in

NETWORK = NetworkConfig("deep_cfr", 8, None, 8)


def small_game(name: str = "fhp") -> Game:
    return load(name, ranks=4, suits=2)


def every_deal(game: Game) -> Tensor:
    """`[deals, 2, rounds]` cells of all ways to deal two hands and a board, equally likely."""
    cards = cards_in(game)
    deck = set(range(cards.ranks * cards.suits))
    found = [
        [*first, *second, *board]
        for first in combinations(sorted(deck), 2)
        for second in combinations(sorted(deck - set(first)), 2)
        for board in combinations(sorted(deck - set(first) - set(second)), cards.board_cards[-1])
    ]
    return cards.dealt(torch.tensor(found)).cells


@dataclass(frozen=True)
class Exact:
    """Per depth: expected decisions per hand, and the mean and mean square of the difference over decisions."""

    decisions: dict[int, float]
    mean: dict[int, float]
    square: dict[int, float]


def enumerated(game: Game, player: int, average: Tensor, other: Tensor) -> Exact:
    """All deals at once down every betting sequence; the player follows `average`, the opponent is uniform."""
    tree, cells = game.tree, every_deal(game)
    policy = game.uniform.clone()
    policy[game.player_slice[player]] = average[game.player_slice[player]]
    apart = (average - other).abs().sum(1)
    reach: dict[int, Tensor] = {0: torch.full((len(cells),), 1 / len(cells), dtype=torch.float64)}
    decisions: dict[int, float] = {}
    sums: dict[int, float] = {}
    squares: dict[int, float] = {}
    for node in range(tree.nodes):
        actor = int(tree.player[node])
        if actor < 0:
            continue
        depth = sum(len(actions) for actions in tree.histories[node])
        first = int(game.first_infoset[node])
        rows = first + cells[:, actor, int(tree.round[node])]
        if actor == player:
            decisions[depth] = decisions.get(depth, 0.0) + float(reach[node].sum())
            sums[depth] = sums.get(depth, 0.0) + float((reach[node] * apart[rows]).sum())
            squares[depth] = squares.get(depth, 0.0) + float((reach[node] * apart[rows].square()).sum())
        for action in range(3):
            to = int(tree.child[node, action])
            if to >= 0:
                reach[to] = reach[node] * policy[rows, action]
    return Exact(
        decisions,
        {d: s / decisions[d] for d, s in sums.items() if decisions[d] > 0},
        {d: s / decisions[d] for d, s in squares.items() if decisions[d] > 0},
    )


class Tables(Mixture):
    """An ensemble of tables `[infosets, actions]`, as `disagreement` uses one."""

    def __init__(self, tables: list[Tensor], weight: list[float]) -> None:
        self.tables, self.weight, self.members = tables, torch.tensor(weight), range(len(tables))

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        pytest.fail("is asked for its average alone")

    def strategy(self, position: int, infosets: Tensor) -> Tensor:
        return self.tables[position].index_select(0, infosets).float()


def average_of(game: Game, player: int, ensemble: Tables) -> Tensor:
    """Eq. 5, at the player's infosets; uniform at the opponent's."""
    form, mine = HoldemForm(game), game.player_slice[player]
    table = game.uniform.clone()
    members = (
        (weight, form.own_reach(strategy)[mine], strategy[mine])
        for weight, strategy in zip(ensemble.weight.tolist(), ensemble.tables, strict=True)
    )
    table[mine] = average_strategy(table[mine], members)
    return table


def members_of(game: Game, kind: str) -> list[Tensor]:
    """Three strategies that disagree: random ones, or ones that exclude each other."""
    if kind == "random":
        return [random_policy(game, seeded(s)).table for s in range(3)]
    return [deterministic_policy(game, seeded(s)).table for s in range(3)]


def compare(game: Game, player: int, ensemble: Any, other: Any, rollouts: int, seed: int = 0) -> dict[int, Tensor]:
    return disagreement(game, player, ensemble, other, rollouts, seeded(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fhp", "fhp_limit"])
@pytest.mark.parametrize("kind", ["random", "deterministic"])
@pytest.mark.parametrize("player", [0, 1])
def test_equals_the_reach_weighted_mean_over_all_deals(name, kind, player):
    game, rollouts = small_game(name), 200_000
    ensemble = Tables(members_of(game, kind), [2.0, 5.0, 1.0])
    other = random_policy(game, seeded(9))
    average = average_of(game, player, ensemble)
    exact = enumerated(game, player, average, other.table)
    found = compare(game, player, ensemble, other, rollouts)
    met = {d for d, n in exact.decisions.items() if n * rollouts > 50}
    assert met <= set(found) <= {d for d, n in exact.decisions.items() if n > 0}
    for depth in met:
        share, count = exact.decisions[depth], len(found[depth])
        assert count == pytest.approx(rollouts * share, abs=4 * (rollouts * share * (1 - share)) ** 0.5 + 1e-6)
        error = max(exact.square[depth] - exact.mean[depth] ** 2, 0) ** 0.5 / count**0.5
        assert float(found[depth].mean()) == pytest.approx(exact.mean[depth], abs=4 * error + 1e-6)


@pytest.mark.parametrize("player", [0, 1])
def test_the_enumeration_can_tell_wrong_averages(player):
    """What ignores the reaches, or the weights, differs by many standard errors of the test above."""
    game, rollouts = small_game(), 200_000
    ensemble = Tables(members_of(game, "random"), [2.0, 5.0, 1.0])
    other = random_policy(game, seeded(9)).table
    right = enumerated(game, player, average_of(game, player, ensemble), other)
    weight = ensemble.weight.double()[:, None, None]
    no_reach = (torch.stack(ensemble.tables) * weight).sum(0) / weight.sum()
    no_weight = average_of(game, player, Tables(ensemble.tables, [1.0, 1.0, 1.0]))
    for wrong in (no_reach, no_weight):
        found = enumerated(game, player, wrong, other)
        apart = []
        for depth, mean in right.mean.items():
            error = (right.square[depth] - mean**2) ** 0.5 / (rollouts * right.decisions[depth]) ** 0.5
            apart.append(abs(found.mean[depth] - mean) / error)
        assert max(apart) > 8


@pytest.mark.slow
@pytest.mark.parametrize("player", [0, 1])
def test_the_average_itself_is_not_apart(player):
    game = small_game()
    ensemble = Tables(members_of(game, "random"), [1.0, 2.0, 3.0])
    found = compare(game, player, ensemble, TabularPolicy(average_of(game, player, ensemble)), 3000)
    assert all(float(apart.max()) < 1e-5 for apart in found.values())
    # One that differs at a single infoset is apart there and nowhere else.
    table = average_of(game, player, ensemble)
    first = game.player_slice[player].start
    other = deterministic_policy(game, seeded(1)).table
    table[first] = other[first]
    found = compare(game, player, ensemble, TabularPolicy(table), 3000)
    apart = found[player]
    assert 0 < int((apart > 1e-5).sum()) < len(apart)
    assert all(float(a.max()) < 1e-5 for depth, a in found.items() if depth != player)


def sampling_of(game: Game, player: int, networks: list[nn.Module]) -> tuple[NetworkSampling, Tensor]:
    """B^M of these networks, and their strategies before the board `[members, infosets, actions]`."""
    features, mine = HoldemFeatures(game), game.player_slice[player]
    early = opening_infosets(game, player)
    opening = torch.stack([random_policy(game, seeded(s)).table[mine][:early] for s in range(len(networks))])
    parameters = torch.stack([parameters_to_vector(n.parameters()).detach() for n in networks])
    holder = value_network(NETWORK, features.columns, 3)
    return NetworkSampling(holder, parameters, features.rows, "argmax", opening, mine.start), opening


def networks_of(game: Game, count: int) -> list[nn.Module]:
    torch.manual_seed(3)
    return [value_network(NETWORK, HoldemFeatures(game).columns, 3) for _ in range(count)]


@pytest.mark.parametrize("player", [0, 1])
def test_an_ensemble_of_one_network_is_that_network(player):
    game = small_game()
    (network,) = networks = networks_of(game, 1)
    ensemble, opening = sampling_of(game, player, networks)
    features, first = HoldemFeatures(game), game.player_slice[player].start
    itself = NetworkPolicy(
        network, features.rows, lambda _, y, legal: regret_matching(y, legal, "argmax"), opening[0], first
    )
    found = compare(game, player, ensemble, itself, 2000)
    # Player 0: raise or fold, then both may act twice on the board; player 1 is first there.
    assert set(found) <= ({0, 3, 5} if player == 0 else {1, 2, 4})
    assert len(found) >= 2
    assert all(float(apart.max()) < 1e-6 for apart in found.values())
    assert any(float(a.max()) > 0.1 for a in compare(game, player, ensemble, uniform(game), 2000).values())


def test_networks_count_with_iteration_and_reach():
    game, player = small_game(), 0
    ensemble, opening = sampling_of(game, player, networks_of(game, 4))
    mine, tables = game.player_slice[player], []
    for member in range(4):
        table = game.uniform.clone()
        table[mine] = ensemble.strategy(member, torch.arange(mine.start, mine.stop)).double()
        assert torch.allclose(table[mine][: opening.shape[1]], opening[member], atol=1e-6)
        tables.append(table / table.sum(1, keepdim=True))
    average = average_of(game, player, Tables(tables, [1.0, 2.0, 3.0, 4.0]))
    found = compare(game, player, ensemble, TabularPolicy(average), 3000)
    assert all(float(apart.max()) < 1e-5 for apart in found.values())
    weights = average_of(game, player, Tables(tables, [1.0, 1.0, 1.0, 1.0]))
    assert any(float(a.max()) > 1e-2 for a in compare(game, player, ensemble, TabularPolicy(weights), 3000).values())


def test_counts_and_values_are_plausible():
    game, rollouts = small_game(), 5000
    ensemble = Tables(members_of(game, "random"), [1.0, 2.0, 3.0])
    other = random_policy(game, seeded(4))
    found = [compare(game, p, ensemble, other, rollouts) for p in range(2)]
    # Depths alternate but for the deal of the board, where player 1, who called, is first as well.
    assert list(found[0]) == [0, 3, 5]
    assert list(found[1]) == [1, 2, 4]
    assert len(found[0][0]) == rollouts, "every hand of player 0 starts with her decision"
    for by_depth in found:
        counts = [len(apart) for apart in by_depth.values()]
        assert counts == sorted(counts, reverse=True)
        for apart in by_depth.values():
            assert apart.shape == (len(apart),)
            assert float(apart.min()) >= 0
            assert float(apart.max()) <= 2 + 1e-6
    # Player 1 acts where a uniform opponent raised instead of folding.
    assert len(found[1][1]) == pytest.approx(rollouts / 2, abs=4 * (rollouts / 4) ** 0.5)


def test_hands_are_played_in_batches(monkeypatch):
    game = small_game()
    ensemble = Tables(members_of(game, "random"), [1.0, 2.0, 3.0])
    other = random_policy(game, seeded(4))
    played: list[int] = []
    original = module._play

    def spy(*arguments: Any) -> None:
        played.append(arguments[4])
        original(*arguments)

    monkeypatch.setattr(module, "_play", spy)
    monkeypatch.setattr(module, "_AT_ONCE", 300)
    found = compare(game, 0, ensemble, other, 1000)
    assert played == [300, 300, 300, 100]
    assert len(found[0]) == 1000
    again = compare(game, 0, ensemble, other, 1000)
    assert all(torch.equal(found[d], again[d]) for d in found)
    assert not torch.equal(compare(game, 0, ensemble, other, 1000, seed=1)[0], found[0])
