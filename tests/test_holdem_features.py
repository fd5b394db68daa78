"""Features of Hold'em infosets against plain Python, and the network of Deep CFR that reads them."""

from __future__ import annotations

import copy
from itertools import pairwise
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.memory import Minibatch
from repro.algorithms.regression import fit
from repro.config import NetworkConfig
from repro.games import Game, load
from repro.games.holdem import HoldemCards
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import average_network, parameter_count, value_network
from repro.networks.optimizers import FlatAdam

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "fhp": ("fhp", {}),
    "fhp5": ("fhp5", {}),
    "fhp_limit": ("fhp_limit", {}),
    "hunl_pot": ("hunl_pot", {}),
    "small_fhp": ("fhp", {"ranks": 5, "suits": 2}),
    "small_limit": ("fhp_limit", {"ranks": 3, "suits": 3, "flop_cards": 4}),
    "small_hunl": ("hunl_pot", {"ranks": 4, "suits": 3, "stack": 1050.0}),
}
FOLD, CALL, RAISE = range(3)
BUILDERS = {"value": value_network, "average": average_network}


def game_of(key: str) -> Game:
    name, parameters = GAMES[key]
    return load(name, **parameters)


def cards_in(game: Game) -> HoldemCards:
    assert isinstance(game.cards, HoldemCards)
    return game.cards


# -- plain Python ------------------------------------------------------------------------------------------------------


def first_to_act(round_: int) -> int:
    """The small blind before the flop, the big one after it."""
    return int(round_ > 0)


def positions_of(game: Game) -> list[int]:
    """Per round, how long its betting can be when a player still has to act, that action included."""
    longest = [0] * game.tree.rounds
    for node in range(game.tree.nodes):
        if game.tree.player[node] >= 0:
            history = game.tree.histories[node]
            longest[len(history) - 1] = max(longest[len(history) - 1], len(history[-1]) + 1)
    return longest


def betting_by_hand(game: Game, history: tuple[tuple[int, ...], ...], positions: list[int]) -> list[float]:
    """Bet or not, its size over the pot before it, to act or not, for every position of every round."""
    chips = list(game.parameters["blinds"])  # type: ignore[call-overload]
    stack = game.parameters.get("stack", float("inf"))
    bet = game.parameters.get("bet")
    found = []
    for round_, positions_here in enumerate(positions):
        actions = history[round_] if round_ < len(history) else ()
        for position in range(positions_here):
            values = [0.0, 0.0, 0.0]
            if position < len(actions):
                player = (first_to_act(round_) + position) % 2
                before = sum(chips)
                owed = chips[1 - player] - chips[player]
                if actions[position] == CALL:
                    chips[player] += owed
                else:
                    assert actions[position] == RAISE
                    added = owed + (before + owed if bet is None else bet)
                    added = min(added, stack - chips[player])
                    chips[player] += added
                    values[:2] = [1.0, added / before]
            elif round_ == len(history) - 1 and position == len(actions):
                values[2] = 1.0
            found += values
    return found


def canonical_by_hand(cards: list[int], sets: list[int], suits: int) -> list[list[int]]:
    """The cards set by set, suits renamed: those with the larger set of ranks on the flop first, then the turn, ..."""
    parts, at = [], 0
    for size in sets:
        parts.append(cards[at : at + size])
        at += size
    signature = {s: [sum(2 ** (c // suits) for c in part if c % suits == s) for part in parts] for s in range(suits)}
    order = sorted(range(suits), key=lambda s: signature[s], reverse=True)
    return [[c // suits * suits + order.index(c % suits) for c in part] for part in parts]


def counts_by_hand(part: list[int], ranks: int, suits: int) -> list[float]:
    """How often each card, each rank and each suit is in a set."""
    found = [float(part.count(c)) for c in range(ranks * suits)]
    found += [float(sum(c // suits == r for c in part)) for r in range(ranks)]
    return found + [float(sum(c % suits == s for c in part)) for s in range(suits)]


def row_by_hand(game: Game, node: int, seen: list[int], positions: list[int]) -> list[float]:
    """The features of a node and what its player sees: the board in the order dealt, then her hand."""
    cards = cards_in(game)
    round_ = len(game.tree.histories[node]) - 1
    streets = list(cards.streets[1 : round_ + 1])
    *board, hand = canonical_by_hand(seen, [*streets, 2], cards.suits)
    row = betting_by_hand(game, game.tree.histories[node], positions)
    for part in (hand, *board, *[[] for _ in cards.streets[round_ + 1 :]]):
        row += counts_by_hand(part, cards.ranks, cards.suits)
    return row


def drawn_infosets(game: Game, n: int, seed: int) -> tuple[Tensor, list[int], list[list[int]]]:
    """Infosets of random nodes and random deals, the rounds mixed; their nodes, and the cards as they were dealt."""
    cards, draw = cards_in(game), torch.Generator().manual_seed(seed)
    decisions = (game.tree.player >= 0).nonzero().flatten()
    # As many of every round as of any other: most nodes are late.
    rounds = game.tree.round[decisions]
    each = torch.bincount(rounds)[rounds]
    nodes = decisions[torch.multinomial(1 / each.double(), n, replacement=True, generator=draw)]
    dealt, infosets, seen = cards.draw(n, draw), [], []
    for node, deal in zip(nodes.tolist(), dealt, strict=True):
        round_, player = int(game.tree.round[node]), int(game.tree.player[node])
        mine = torch.cat([deal[4 : 4 + cards.board_cards[round_]], deal[2 * player : 2 * player + 2]])
        infosets.append(int(game.first_infoset[node]) + int(cards.cell(round_, mine[None])))
        seen.append(mine.tolist())
    return torch.tensor(infosets), nodes.tolist(), seen


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", GAMES)
def test_rows_equal_plain_python(key):
    game = game_of(key)
    features, positions = HoldemFeatures(game), positions_of(game)
    infosets, nodes, seen = drawn_infosets(game, 150, seed=1)
    x, legal = features.rows(infosets)
    assert x.dtype == torch.float32
    assert legal.dtype == torch.bool
    assert len({len(game.tree.histories[n]) for n in nodes}) == game.tree.rounds, "the batch must mix all rounds"
    for i, (node, cards) in enumerate(zip(nodes, seen, strict=True)):
        torch.testing.assert_close(x[i], torch.tensor(row_by_hand(game, node, cards, positions)), rtol=1e-6, atol=0)
        assert legal[i].tolist() == [int(game.tree.child[node, a]) >= 0 for a in range(3)]


@pytest.mark.parametrize("key", ["small_fhp", "small_limit", "small_hunl", "fhp5"])
def test_a_batch_of_one_round_and_parts_of_a_batch_give_the_same_rows(key):
    game = game_of(key)
    features = HoldemFeatures(game)
    infosets, nodes, _ = drawn_infosets(game, 90, seed=2)
    whole, legal = features.rows(infosets)
    rounds = torch.tensor([len(game.tree.histories[n]) - 1 for n in nodes])
    for r in range(game.tree.rounds):
        here = rounds == r
        x, allowed = features.rows(infosets[here])
        assert torch.equal(x, whole[here])
        assert torch.equal(allowed, legal[here])
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    assert torch.equal(features.rows(infosets[order])[0], whole[order])
    assert torch.equal(features.rows(infosets[:1])[0], whole[:1])
    nothing, none_legal = features.rows(infosets[:0])
    assert nothing.shape == (0, features.columns.count)
    assert none_legal.shape == (0, 3)


def test_rows_by_hand():
    """One infoset, written out."""
    game = load("fhp", ranks=5, suits=2)
    features, cards = HoldemFeatures(game), cards_in(game)
    # After raise, call / call, raise: player 1 is first after the flop, so that she faces a bet of the pot, 500 chips.
    node = game.tree.histories.index(((RAISE, CALL), (CALL, RAISE)))
    assert game.tree.player[node] == 1
    # Ranks T J Q K A are 0 to 4. Flop Ah Kh Th, hand Ad Qh; diamonds are suit 0, hearts 1.
    dealt = torch.tensor([[4 * 2 + 1, 3 * 2 + 1, 0 * 2 + 1, 4 * 2 + 0, 2 * 2 + 1]])
    x, legal = features.rows(game.first_infoset[node] + cards.cell(1, dealt))
    assert legal.tolist() == [[True, True, True]]
    # Before the flop a raise to 300 on 150 in the pot (50 to call, then 200), and a call.
    state: list[float] = [1, 250 / 150, 0, 0, 0, 0]
    # A check, a bet of the pot, player 1 to act; a fourth position that is not reached.
    state += [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0]
    # Hearts have three cards on the flop and come first in the canonical deal: they are suit 0 now.
    hand = {"cards": [0, 0, 0, 0, 1, 0, 0, 0, 0, 1], "ranks": [0, 0, 1, 0, 1], "suits": [1, 1]}
    flop = {"cards": [1, 0, 0, 0, 0, 0, 1, 0, 1, 0], "ranks": [1, 0, 0, 1, 1], "suits": [3, 0]}
    counts = [float(n) for shown in (hand, flop) for part in shown.values() for n in part]
    torch.testing.assert_close(x[0], torch.tensor([*state, *counts]))


@pytest.mark.parametrize(
    ("key", "positions", "sets"),
    [
        ("fhp", [2, 4], 2),
        ("fhp5", [2, 4], 2),
        # Call, then three raises before the flop, four after it, and the answer to the last.
        ("fhp_limit", [5, 6], 2),
        # A call, then to 300, 900, 2,700, 8,100 and all-in, and the answer; after a check on the flop the same sums.
        ("hunl_pot", [7, 7, 7, 7], 4),
    ],
)
def test_columns_lie_side_by_side(key, positions, sets):
    game = game_of(key)
    columns = HoldemFeatures(game).columns
    assert positions_of(game) == positions
    assert columns.state == slice(0, 3 * sum(positions))
    assert len(columns.cards) == sets
    for before, after in pairwise((columns.state, *columns.cards)):
        assert before.stop == after.start
    assert [c.stop - c.start for c in columns.cards] == [52 + 13 + 4] * sets
    assert columns.count == 3 * sum(positions) + 69 * sets


@pytest.mark.parametrize("key", ["fhp", "hunl_pot"])
def test_card_columns_count_the_cards_that_are_out(key):
    game = game_of(key)
    features, cards = HoldemFeatures(game), cards_in(game)
    infosets, nodes, _ = drawn_infosets(game, 200, seed=3)
    x, _ = features.rows(infosets)
    for row, node in zip(x, nodes, strict=True):
        round_ = len(game.tree.histories[node]) - 1
        expected = [2, *(k if r <= round_ else 0 for r, k in enumerate(cards.streets[1:], start=1))]
        for where, count in zip(features.columns.cards, expected, strict=True):
            for group in row[where].split([52, 13, 4]):
                assert float(group.sum()) == count


@pytest.mark.parametrize(("name", "ranks", "suits"), [("fhp", 5, 2), ("fhp_limit", 4, 2), ("fhp5", 3, 3)])
def test_features_tell_all_of_a_players_infosets_apart(name, ranks, suits):
    game = load(name, ranks=ranks, suits=suits)
    features = HoldemFeatures(game)
    for mine in game.player_slice:
        infosets = torch.arange(mine.start, mine.stop)
        x, _ = features.rows(infosets)
        assert len(x.unique(dim=0)) == mine.stop - mine.start


def test_features_tell_drawn_infosets_of_four_rounds_apart():
    game = game_of("small_hunl")
    features = HoldemFeatures(game)
    infosets = drawn_infosets(game, 4000, seed=4)[0].unique()
    assert len(infosets) > 3000
    player = (infosets >= game.player_slice[1].start).float()
    x = torch.cat([features.rows(infosets)[0], player[:, None]], 1)
    assert len(x.unique(dim=0)) == len(infosets)


@pytest.mark.parametrize("name", ["fhp", "fhp_limit", "hunl_pot", "hnlh"])
def test_state_columns_tell_a_players_betting_nodes_apart(name):
    game = load(name)
    state = HoldemFeatures(game)._state
    for player in range(2):
        mine = state[game.tree.player == player]
        assert len(mine.unique(dim=0)) == len(mine)


def test_an_all_in_is_shown_by_its_logarithm():
    """A bet of so many pots in `hunl_pot`, its logarithm where all-in is always possible."""
    for name, size in (("hunl_pot", lambda pots: pots), ("hnlh", lambda pots: log(1 + pots))):
        game = load(name)
        state, tree = HoldemFeatures(game)._state, game.tree
        raised = int(tree.child[0, RAISE])
        assert float(state[raised, 1]) == pytest.approx(size(float(tree.chips[raised].sum()) / 150 - 1))
    all_in = int(game.tree.child[0, -1])
    assert state[all_in, :3].tolist() == pytest.approx([1, log(20_100 / 150), 0])
    assert float(state.max()) < 6


def test_suits_may_be_renamed_and_cards_of_a_set_exchanged():
    game = load("hunl_pot")
    features, cards = HoldemFeatures(game), cards_in(game)
    draw = torch.Generator().manual_seed(5)
    dealt = cards.draw(50, draw)[:, [4, 5, 6, 7, 8, 0, 1]]
    renamed = dealt // 4 * 4 + torch.tensor([2, 0, 3, 1])[dealt % 4]
    shuffled = renamed[:, [2, 0, 1, 3, 4, 6, 5]]
    node = next(n for n in range(game.tree.nodes) if game.tree.player[n] >= 0 and game.tree.round[n] == 3)
    rows = [features.rows(game.first_infoset[node] + cards.cell(3, c))[0] for c in (dealt, shuffled)]
    assert torch.equal(*rows)
    # The turn and the river are streets of their own.
    exchanged = features.rows(game.first_infoset[node] + cards.cell(3, dealt[:, [0, 1, 2, 4, 3, 5, 6]]))[0]
    assert not torch.equal(rows[0], exchanged)


# -- the network -------------------------------------------------------------------------------------------------------


def expected_parameters(state: int, sets: int, deck: int, width: int, card_width: int, actions: int = 3) -> int:
    """Layer by layer: inputs times outputs, and a bias for each output."""

    def layer(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs

    embeddings = sets * deck * width
    cards = layer(sets * width, card_width) + layer(card_width, card_width) + layer(card_width, width)
    bets = layer(state, width) + layer(width, width)
    together = layer(2 * width, width) + 2 * layer(width, width)
    return embeddings + cards + bets + together + layer(width, actions)


@pytest.mark.parametrize(
    ("key", "card_width", "count"),
    [
        ("fhp", 64, 47_555),
        ("fhp", 192, 105_155),
        ("fhp5", 64, 47_555),
        ("fhp_limit", 64, 48_515),
        ("fhp_limit", 192, 106_115),
        ("hunl_pot", 64, 68_803),
        ("hunl_pot", 192, 142_787),
    ],
)
def test_parameter_counts(key, card_width, count):
    columns = HoldemFeatures(game_of(key)).columns
    config = NetworkConfig("deep_cfr", 64, None, card_width)
    assert expected_parameters(columns.state.stop, len(columns.cards), 69, 64, card_width) == count
    for build in BUILDERS.values():
        assert parameter_count(build(config, columns, 3)) == count


@pytest.mark.parametrize(("card_width", "skips"), [(8, 5), (24, 4)])
def test_the_network_written_out(card_width, skips):
    """Fig. 1: three layers on the sets' embeddings, two on the bets, three on both; skips where widths are equal."""
    game = load("hunl_pot", ranks=4, suits=3, stack=1050.0)
    features = HoldemFeatures(game)
    torch.manual_seed(0)
    network = value_network(NetworkConfig("deep_cfr", 8, None, card_width), features.columns, 3)
    x, legal = features.rows(drawn_infosets(game, 40, seed=6)[0])
    linear = [m for m in network.body.modules() if isinstance(m, nn.Linear)]
    # `Merge` declares its branches before its own layer.
    *embeddings, cards_1, cards_2, cards_3, bets_1, bets_2, both_1, both_2, both_3, out = linear
    assert len(embeddings) == 4
    assert all(e.bias is None for e in embeddings)
    with torch.no_grad():
        sets = [e(x[:, c]) for e, c in zip(embeddings, features.columns.cards, strict=True)]
        cards = cards_1(torch.cat(sets, 1)).relu()
        cards = (cards_2(cards) + cards).relu()
        cards = cards_3(cards).relu() if card_width != 8 else (cards_3(cards) + cards).relu()
        bets = bets_1(x[:, features.columns.state]).relu()
        bets = (bets_2(bets) + bets).relu()
        both = both_1(torch.cat([cards, bets], 1)).relu()
        both = (both_2(both) + both).relu()
        both = (both_3(both) + both).relu()
        both = (both - both.mean(1, keepdim=True)) / (both.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        torch.testing.assert_close(network(x, legal), out(both) * legal, rtol=1e-4, atol=1e-5)
    assert sum(type(m).__name__ == "Residual" for m in network.body.modules()) == skips


def problem(game: Game, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and legal mask of drawn infosets, weights (one of them zero) and targets, also at illegal actions."""
    x, legal = HoldemFeatures(game).rows(drawn_infosets(game, rows, seed)[0])
    draw = torch.Generator().manual_seed(seed)
    weight = torch.rand(rows, 1, generator=draw)
    weight[0] = 0.0
    return x, legal, weight, torch.randn(rows, 3, generator=draw)


def exact_gradients(network: nn.Module, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Output and flat gradient in float64, by torch's autograd."""
    x, legal, weight, target = inputs
    exact = copy.deepcopy(network).double()
    exact.zero_grad()
    output = exact(x.double(), legal)
    ((output - target.double()).square() * weight.double() / 2).sum().backward()
    return output.detach(), torch.cat([p.grad.flatten() for p in exact.parameters() if p.grad is not None])


@pytest.mark.parametrize("card_width", [8, 24])
@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_gradients_of_rows_of_no_table(rule, kind, card_width):
    game = load("fhp", ranks=5, suits=2)
    torch.manual_seed(0)
    network = BUILDERS[kind](NetworkConfig("deep_cfr", 8, None, card_width), HoldemFeatures(game).columns, 3)
    optimizer = FlatAdam(network, 1e-3, 1.0)
    assert isinstance(gradients_of(network), HandDifferentiated)
    assert optimizer.flat.grad is not None
    gradients = rule(network)
    for seed, rows in enumerate((40, 40, 7, 130)):
        inputs = problem(game, rows, seed)
        before = [t.clone() for t in inputs]
        expected_output, expected = exact_gradients(network, *inputs)
        gradients.rows(*inputs[:2])
        output = gradients.compute(*inputs[2:])
        torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
        largest = float(expected.abs().max())
        torch.testing.assert_close(optimizer.flat.grad.double(), expected, rtol=1e-4, atol=1e-5 * largest)
        assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))


@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_rows_and_tables_may_take_turns(rule):
    game = load("fhp", ranks=5, suits=2)
    torch.manual_seed(0)
    network = value_network(NetworkConfig("deep_cfr", 8, None, 24), HoldemFeatures(game).columns, 3)
    optimizer = FlatAdam(network, 1e-3, 1.0)
    assert optimizer.flat.grad is not None
    # A table that repeats itself, so that branches run on its distinct rows.
    x, legal = (part.repeat(60, 1) for part in problem(game, 20, 7)[:2])
    gradients = rule(network)
    draw = torch.Generator().manual_seed(8)
    for turn in range(2):
        gradients.prepare(x, legal)
        for rows in (torch.randint(len(x), (50,), generator=draw), torch.tensor([3, 3, 900])):
            gradients.select(rows)
            weight, target = torch.rand(len(rows), 1, generator=draw), torch.randn(len(rows), 3, generator=draw)
            gradients.compute(weight, target)
            _, expected = exact_gradients(network, x[rows], legal[rows], weight, target)
            largest = float(expected.abs().max())
            torch.testing.assert_close(optimizer.flat.grad.double(), expected, rtol=1e-4, atol=1e-5 * largest)
        own = problem(game, 30, 9 + turn)
        gradients.rows(*own[:2])
        gradients.compute(*own[2:])
        _, expected = exact_gradients(network, *own)
        largest = float(expected.abs().max())
        torch.testing.assert_close(optimizer.flat.grad.double(), expected, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("kind", BUILDERS)
def test_fit_takes_minibatches_that_bring_their_inputs(kind):
    """It equals a plain loop, and what is fitted without a table what is fitted with one."""
    game, steps = load("fhp", ranks=5, suits=2), 8
    torch.manual_seed(1)
    plain = BUILDERS[kind](NetworkConfig("deep_cfr", 8, None, 24), HoldemFeatures(game).columns, 3)
    network, from_table = copy.deepcopy(plain), copy.deepcopy(plain)
    x, legal, _, _ = problem(game, 60, 10)
    draw, batches = torch.Generator().manual_seed(2), []
    for _ in range(steps):
        rows = torch.randint(60, (25,), generator=draw)
        weight, target = torch.rand(25, 1, generator=draw), torch.randn(25, 3, generator=draw)
        batches.append(Minibatch(rows, weight, target, torch.zeros(()), (x[rows], legal[rows])))
    reference = torch.optim.Adam(plain.parameters(), lr=1e-3)
    for batch in batches:
        assert batch.inputs is not None
        reference.zero_grad()
        loss = ((plain(*batch.inputs) - batch.target).square() * batch.weight).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        reference.step()
    reported = fit(network, FlatAdam(network, 1e-3, 0.5), batches, steps)
    assert reported == pytest.approx(float(loss.detach()), rel=1e-3)
    listed = [Minibatch(b.infosets, b.weight, b.target, b.constant) for b in batches]
    fit(from_table, FlatAdam(from_table, 1e-3, 0.5), listed, steps, x, legal)
    for p, q, r in zip(plain.parameters(), network.parameters(), from_table.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=2e-5)
        torch.testing.assert_close(r, p, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("kind", BUILDERS)
def test_outputs_respect_the_legal_mask(kind):
    game = game_of("small_hunl")
    torch.manual_seed(0)
    network = BUILDERS[kind](NetworkConfig("deep_cfr", 8, None, 24), HoldemFeatures(game).columns, 3)
    x, legal, _, _ = problem(game, 300, 11)
    assert set(legal.sum(1).tolist()) == {2, 3}
    with torch.no_grad():
        output = network(x, legal)
    assert bool((output[~legal] == 0).all())
    if kind == "average":
        assert bool((output[legal] > 0).all())
        torch.testing.assert_close(output.sum(1), torch.ones(300), rtol=1e-6, atol=1e-6)
    else:
        assert bool((output[legal] != 0).all())
