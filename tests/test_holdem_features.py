"""Features of Hold'em infosets against plain Python."""

from __future__ import annotations

from itertools import pairwise
from math import log

import pytest
import torch

from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from tests.helpers.holdem import GAMES, cards_in, drawn_infosets, game_of

FOLD, CALL, RAISE = range(3)


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
    state = HoldemFeatures(game).state
    for player in range(2):
        mine = state[game.tree.player == player]
        assert len(mine.unique(dim=0)) == len(mine)


def test_an_all_in_is_shown_by_its_logarithm():
    """A bet of so many pots in `hunl_pot`, its logarithm where all-in is always possible."""
    for name, size in (("hunl_pot", lambda pots: pots), ("hnlh", lambda pots: log(1 + pots))):
        game = load(name)
        state, tree = HoldemFeatures(game).state, game.tree
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
