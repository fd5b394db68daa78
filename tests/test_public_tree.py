"""The exact engine against OpenSpiel, against plain Python over explicit deals, and against identities.

The way to OpenSpiel and back (`repro.interop.openspiel`) is tested here too: each is the other's witness.
"""

import sys
from collections import defaultdict
from fractions import Fraction
from itertools import groupby, permutations, product
from types import SimpleNamespace
from typing import Any

import pyspiel
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from open_spiel.python import policy as openspiel_policy

from repro.engine.public_tree import PublicTree
from repro.errors import ReproError
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import load
from repro.interop.openspiel import from_openspiel, openspiel_game, to_openspiel
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform

# Small enough for plain Python. Odd numbers of everything: one suit, no raises, a first bet that is larger than the
# second, fractions of chips, two cards left in the deck.
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "kuhn": ("kuhn", {}),
    "kuhn_2": ("kuhn", {"ranks": 2}),
    "kuhn_4": ("kuhn", {"ranks": 4}),
    "leduc": ("leduc", {}),
    "three_cards": ("leduc", {"suits": 1, "max_raises": 1}),
    "no_raises": ("leduc", {"ranks": 4, "suits": 1, "max_raises": 0, "ante": 2.0}),
    "two_ranks": ("leduc", {"ranks": 2, "suits": 3, "max_raises": 1, "bet_sizes": (5.0, 0.5), "ante": 0.25}),
    "three_raises": ("leduc", {"ranks": 2, "suits": 2, "max_raises": 3, "bet_sizes": (1.0, 3.0), "ante": 3.0}),
    "big_leduc": ("big_leduc", {"ranks": 2, "max_raises": 1}),
}
TINY_GAMES = [pytest.param(name, {**kw, "suit_isomorphism": iso}, id=f"{key}-{'ranks' if iso else 'cards'}")
              for key, (name, kw) in TINY.items() for iso in (True, False)]  # fmt: skip

LEDUC_SHAPE: dict[str, Any] = {"ranks": 3, "suits": 2, "max_raises": 2, "bet_sizes": (2, 4), "ante": 1}
SHAPES = {
    "kuhn": {"ranks": 3, "suits": 1, "max_raises": 1, "bet_sizes": (1,), "ante": 1},
    "leduc": LEDUC_SHAPE,
    "big_leduc": {**LEDUC_SHAPE, "ranks": 12, "max_raises": 6},
}


class Reference:
    """Poker in plain Python, one explicit deal after the other; shares no code with the package.

    A history is a string such as "rc/cr" (fold, call or check, raise or bet; rounds divided by "/"). An infoset is
    (player, hand, board or None, history); a strategy maps infosets to {action: probability}.
    """

    def __init__(self, name, suit_isomorphism=True, **parameters):
        shape = {**SHAPES[name], **parameters}
        self.ranks, self.suits, self.max_raises = shape["ranks"], shape["suits"], shape["max_raises"]
        self.bets, self.ante, self.by_rank = shape["bet_sizes"], shape["ante"], suit_isomorphism

    def deals(self):
        """Every ordered (card of player 0, card of player 1[, board card]); all are equally likely."""
        return list(permutations(range(self.ranks * self.suits), 1 + len(self.bets)))

    def options(self, history, spent):
        raises = history.split("/")[-1].count("r")
        return "f" * (spent[0] != spent[1]) + "c" + "r" * (raises < self.max_raises)

    def act(self, history, spent, action):
        """History and chips spent after an action."""
        rounds = history.split("/")
        if action == "f":
            return history + "f", spent
        me, bet = len(rounds[-1]) % 2, self.bets[len(rounds) - 1]
        paid = spent[1 - me] + (bet if action == "r" else 0)
        spent = (paid, spent[1]) if me == 0 else (spent[0], paid)
        goes_on = action == "c" and rounds[-1] and len(rounds) < len(self.bets)
        return history + action + "/" * bool(goes_on), spent

    def finished(self, history):
        *before, last = history.split("/")
        return last.endswith("f") or (len(before) == len(self.bets) - 1 and len(last) > 1 and last.endswith("c"))

    def payoff(self, deal, history, spent):
        """Chips of player 0."""
        if history.endswith("f"):
            return -spent[0] if len(history.split("/")[-1]) % 2 == 1 else spent[1]
        ours, theirs = (self.strength(card, deal[2:]) for card in deal[:2])
        return spent[0] * ((ours > theirs) - (ours < theirs))

    def strength(self, card, board):
        rank = card // self.suits
        return any(b // self.suits == rank for b in board), rank

    def infoset(self, deal, history):
        shown = [card // self.suits if self.by_rank else card for card in deal]
        player = len(history.split("/")[-1]) % 2
        return player, shown[player], shown[2] if "/" in history else None, history

    def histories(self):
        """{history: chips spent} of decisions and endings."""
        found, waiting = {}, [("", (self.ante, self.ante))]
        while waiting:
            history, spent = waiting.pop()
            found[history] = spent
            if not self.finished(history):
                waiting.extend(self.act(history, spent, a) for a in self.options(history, spent))
        return found

    def infosets(self):
        decisions = [h for h in self.histories() if not self.finished(h)]
        return {self.infoset(deal, history) for deal in self.deals() for history in decisions}

    def sweep(self, strategy):
        """Everything there is to know about a strategy.

        value: chips of player 0. Per infoset: own_reach, the owner's probability; action_values, {action: value}
        counterfactual; visits_as_traverser and visits_as_other, how often a traversal that explores all of the
        traverser's actions comes by. touched: histories that such a traversal meets, per traverser.
        """
        deals = self.deals()
        out = SimpleNamespace(
            chance=1 / len(deals), value=0.0, own_reach={}, touched=[0.0, 0.0],
            action_values=defaultdict(lambda: defaultdict(float)),
            visits_as_traverser=defaultdict(float), visits_as_other=defaultdict(float),
        )  # fmt: skip
        for deal in deals:
            out.value += out.chance * self._descend(strategy, deal, ("", (self.ante,) * 2), (1.0, 1.0), out)
        return out

    def _descend(self, strategy, deal, at, reach, out):
        (history, spent), chance = at, out.chance
        for player in range(2):
            out.touched[player] += chance * reach[1 - player]
        if self.finished(history):
            return self.payoff(deal, history, spent)
        infoset = self.infoset(deal, history)
        me, value = infoset[0], 0.0
        out.own_reach[infoset] = reach[me]
        out.visits_as_traverser[infoset] += chance * reach[1 - me]
        out.visits_as_other[infoset] += chance * reach[me]
        for action in self.options(history, spent):
            p = strategy[infoset][action]
            onward = (reach[0] * p, reach[1]) if me == 0 else (reach[0], reach[1] * p)
            below = self._descend(strategy, deal, self.act(history, spent, action), onward, out)
            out.action_values[infoset][action] += chance * reach[1 - me] * (below if me == 0 else -below)
            value += p * below
        return value

    def best_response_value(self, strategy, player):
        """By backward induction: the longest histories are decided first."""
        strategy = dict(strategy)
        mine = sorted((i for i in strategy if i[0] == player), key=lambda i: len(i[3]), reverse=True)
        for _, infosets in groupby(mine, key=lambda i: len(i[3])):
            values = self.sweep(strategy).action_values
            for infoset in infosets:
                best = max(values[infoset], key=values[infoset].get)
                strategy[infoset] = {action: float(action == best) for action in values[infoset]}
        value = self.sweep(strategy).value
        return value if player == 0 else -value


def infosets_of(game):
    """The infosets of a game, in its order, as `Reference` names them."""
    columns = (game.infoset_player, game.infoset_hand, game.infoset_board, game.infoset_node)
    for player, hand, board, node in zip(*(c.tolist() for c in columns), strict=True):
        history = "/".join("".join("fcr"[a] for a in actions) for actions in game.tree.histories[node])
        yield player, hand, board if "/" in history else None, history


def strategy_of(game, table):
    """A table as a strategy of `Reference`."""
    return {
        infoset: {a: p for a, p, legal in zip("fcr", row, allowed, strict=True) if legal}
        for infoset, row, allowed in zip(infosets_of(game), table.tolist(), game.legal.tolist(), strict=True)
    }


def policies_of(game):
    """A few policies of every kind, `(name, policy)`."""
    generator = torch.Generator().manual_seed(17)
    yield "uniform", uniform(game)
    for i in range(3):
        yield f"random {i}", random_policy(game, generator)
    for i in range(3):
        yield f"deterministic {i}", deterministic_policy(game, generator)


def seated(game, first, second):
    """The table that plays `first` in seat 0 and `second` in seat 1."""
    table = second.clone()
    table[game.player_slice[0]] = first[game.player_slice[0]]
    return table


def random_table(game, seed):
    return random_policy(game, torch.Generator().manual_seed(seed)).table


# -- known numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "anchor"), [("kuhn", Fraction(11, 12)), ("leduc", Fraction(1709, 360))])
@pytest.mark.parametrize("iso", [True, False])
def test_nash_conv_of_uniform(name, anchor, iso):
    game = load(name, suit_isomorphism=iso)
    assert nash_conv(game, uniform(game)) == pytest.approx(float(anchor), abs=1e-12)


def kuhn_family(game, alpha):
    """The equilibria of Kuhn poker [Kuhn 1950]: player 0 has one free parameter in [0, 1/3], player 1 none."""
    bets = {"": (alpha, 0, 3 * alpha), "c": (1 / 3, 0, 1)}
    calls = {"cr": (0, alpha + 1 / 3, 1), "r": (0, 1 / 3, 1)}
    table = torch.zeros(game.infosets, 3, dtype=torch.float64)
    for row, (_, hand, _, history) in zip(table, infosets_of(game), strict=True):
        if history in bets:
            row[2] = bets[history][hand]
        else:
            row[1] = calls[history][hand]
        row[1 if history in bets else 0] = 1 - row.sum()
    return TabularPolicy(table)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_kuhn_equilibria(alpha):
    game = load("kuhn")
    policy = kuhn_family(game, alpha)
    assert expected_value(game, policy) == pytest.approx((-1 / 18, 1 / 18), abs=1e-15)
    assert nash_conv(game, policy) == pytest.approx(0, abs=1e-15)
    spoilt = policy.table.clone()
    spoilt[game.player_slice[0]] = game.uniform[game.player_slice[0]]
    assert nash_conv(game, TabularPolicy(spoilt)) > 0.1


# -- OpenSpiel ---------------------------------------------------------------------------------------------------------

ODD_OPENSPIEL: dict[str, Any] = {"ranks": 4, "suits": 3, "max_raises": 1, "bet_sizes": (1, 5), "ante": 3}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("kuhn", {}),
        ("leduc", {}),
        ("leduc", {"suit_isomorphism": False}),
        # These are not in OpenSpiel under their names, but universal_poker plays them.
        ("kuhn", {"ranks": 5}),
        ("leduc", {"suits": 1, "max_raises": 3, "suit_isomorphism": False}),
        ("leduc", {"ranks": 2, "max_raises": 0}),
    ],
)
def test_values_equal_openspiel(name, parameters):
    game = load(name, **parameters)
    theirs = openspiel_game(game)
    for which, policy in policies_of(game):
        table = to_openspiel(game, policy)
        root = theirs.new_initial_state()
        returns = pyspiel.expected_returns(root, table, -1, True, 0.0)
        assert expected_value(game, policy) == pytest.approx(returns, abs=1e-9), which
        assert nash_conv(game, policy) == pytest.approx(pyspiel.nash_conv(theirs, table), abs=1e-9), which
        for player in range(2):
            value, _ = best_response(game, policy, player)
            their_value = pyspiel.TabularBestResponse(theirs, player, table).value_from_state(root)
            assert value == pytest.approx(their_value, abs=1e-9), which


def test_values_equal_openspiel_with_many_suits():
    game = load("leduc", **ODD_OPENSPIEL)
    policy = TabularPolicy(random_table(game, 3))
    their_value = pyspiel.nash_conv(openspiel_game(game), to_openspiel(game, policy))
    assert nash_conv(game, policy) == pytest.approx(their_value, abs=1e-9)


def test_openspiel_names():
    assert openspiel_game(load("kuhn")).get_type().short_name == "kuhn_poker"
    assert openspiel_game(load("leduc")).get_type().short_name == "leduc_poker"
    assert openspiel_game(load("leduc", ranks=4)).get_type().short_name == "universal_poker"


def test_actions_of_kuhn_in_openspiel():
    game = load("kuhn")
    table = torch.zeros(game.infosets, 3, dtype=torch.float64)
    table[:, 1] = 1
    passive = to_openspiel(game, TabularPolicy(table)).policy_table()
    assert len(passive) == 12
    # Checking is OpenSpiel's pass (0), but calling a bet is its bet (1); "p" and "b" are the actions so far.
    for infoset, row in passive.items():
        assert dict(row) == ({0: 0.0, 1: 1.0} if infoset.endswith("b") else {0: 1.0, 1: 0.0})


@pytest.mark.parametrize(
    ("name", "parameters", "states"),
    [
        ("kuhn", {}, 12),
        ("leduc", {}, 936),
        ("leduc", {"suit_isomorphism": False}, 936),
        ("leduc", {**ODD_OPENSPIEL, "suit_isomorphism": False}, 1632),
        ("kuhn", {"ranks": 2}, 8),
    ],
)
def test_there_and_back(name, parameters, states):
    game = load(name, **parameters)
    table = random_table(game, 5)
    there = to_openspiel(game, TabularPolicy(table))
    assert len(there.policy_table()) == states
    torch.testing.assert_close(from_openspiel(game, there).table, table, rtol=0, atol=1e-15)


def test_from_openspiel_takes_both_kinds_of_policies():
    game = load("leduc")
    theirs = openspiel_game(game)
    for policy in (pyspiel.UniformRandomPolicy(theirs), openspiel_policy.TabularPolicy(theirs)):
        torch.testing.assert_close(from_openspiel(game, policy).table, game.uniform)
    solver = pyspiel.CFRSolver(theirs)
    for _ in range(3):
        solver.evaluate_and_update_policy()
    solved = solver.average_policy()
    ours = nash_conv(game, from_openspiel(game, solved))
    assert ours == pytest.approx(pyspiel.nash_conv(theirs, solved), abs=1e-9)
    assert 0 < ours < 4


def one_sentence(error):
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message
    return message


def test_from_openspiel_wants_suits_apart():
    by_card = load("leduc", suit_isomorphism=False)
    policy = to_openspiel(by_card, TabularPolicy(random_table(by_card, 0)))
    with pytest.raises(ReproError) as error:
        from_openspiel(load("leduc"), policy)
    assert "suit_isomorphism=False" in one_sentence(error)


@pytest.mark.parametrize("make", [lambda game: to_openspiel(game, uniform(game)),
                                  lambda game: openspiel_policy.TabularPolicy(openspiel_game(game))])  # fmt: skip
def test_from_openspiel_of_another_game(make):
    with pytest.raises(ReproError) as error:
        from_openspiel(load("leduc"), make(load("kuhn")))
    assert "leduc_poker()" in one_sentence(error)


@pytest.mark.parametrize("parameters", [{"ranks": 14}, {"suits": 5}, {"ante": 0.5}, {"bet_sizes": (2, 4.5)}])
def test_openspiel_cannot_play(parameters):
    game = load("leduc", **parameters)
    with pytest.raises(ReproError, match="supported are at most 13 ranks") as error:
        openspiel_game(game)
    key, value = next(iter(parameters.items()))
    assert f"{key}={value}" in str(error.value)


def test_openspiel_without_universal_poker(monkeypatch):
    monkeypatch.setattr(pyspiel, "registered_names", lambda: ["kuhn_poker", "leduc_poker"])
    assert openspiel_game(load("leduc")).get_type().short_name == "leduc_poker"
    with pytest.raises(ReproError) as error:
        openspiel_game(load("leduc", max_raises=3))
    message = one_sentence(error)
    assert "max_raises=3" in message
    assert "max_raises=2" in message


def test_openspiel_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    for call in (lambda: openspiel_game(load("kuhn")), lambda: to_openspiel(load("kuhn"), uniform(load("kuhn")))):
        with pytest.raises(ReproError) as error:
            call()
        assert "pip install open_spiel" in one_sentence(error)


# -- plain Python ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_equals_explicit_deals(name, parameters):
    game, reference = load(name, **parameters), Reference(name, **parameters)
    names = list(infosets_of(game))
    assert len(set(names)) == game.infosets
    assert set(names) == reference.infosets()
    table = random_table(game, 11)
    exact = reference.sweep(strategy_of(game, table))
    tree = PublicTree(game)
    assert tree.expected_values(table).tolist() == pytest.approx([exact.value, -exact.value], abs=1e-12)
    reach, values = tree.own_reach(table).tolist(), tree.action_values(table).tolist()
    for infoset, ours, row in zip(names, reach, values, strict=True):
        assert ours == pytest.approx(exact.own_reach[infoset], abs=1e-12)
        theirs = exact.action_values[infoset]
        assert row == pytest.approx([theirs.get(a, 0.0) for a in "fcr"], abs=1e-12), infoset


@pytest.mark.parametrize("key", ["kuhn_2", "kuhn_4", "three_cards", "no_raises", "two_ranks", "big_leduc"])
def test_best_response_equals_backward_induction(key):
    name, parameters = TINY[key]
    game, reference = load(name, **parameters), Reference(name, **parameters)
    for seed in range(2):
        table = random_table(game, seed)
        both = PublicTree(game).best_response_values(table).tolist()
        exact = [reference.best_response_value(strategy_of(game, table), player) for player in range(2)]
        assert both == pytest.approx(exact, abs=1e-12)


def test_best_response_equals_best_of_all_pure_strategies():
    game, reference = load("kuhn", ranks=4), Reference("kuhn", ranks=4)
    strategy = strategy_of(game, random_table(game, 4))
    for player, sign in ((0, 1), (1, -1)):
        mine = [i for i in strategy if i[0] == player]
        best = max(
            sign * reference.sweep(strategy | dict(zip(mine, pure, strict=True))).value
            for pure in product(*([{a: float(a == b) for a in strategy[i]} for b in strategy[i]] for i in mine))
        )
        value, _ = best_response(game, TabularPolicy(random_table(game, 4)), player)
        assert value == pytest.approx(best, abs=1e-12)


# -- identities --------------------------------------------------------------------------------------------------------

_chips = st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0])
leducs = st.fixed_dictionaries(
    {
        "ranks": st.integers(2, 5),
        "suits": st.integers(1, 3),
        "max_raises": st.integers(0, 3),
        "bet_sizes": st.tuples(_chips, _chips),
        "ante": _chips,
    }
)
seeds = st.integers(0, 2**31)
invariant = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def small_leduc(parameters, **more):
    assume(parameters["ranks"] * parameters["suits"] >= 3)
    return load("leduc", **parameters, **more)


def draw_table(game, seed):
    """Random, but some infosets are deterministic: zeros are where products and maxima go wrong."""
    generator = torch.Generator().manual_seed(seed)
    mixed, pure = random_policy(game, generator).table, deterministic_policy(game, generator).table
    return torch.where(torch.rand(game.infosets, 1, generator=generator) < 0.3, pure, mixed)


@invariant
@given(leducs, seeds)
def test_zero_sum_and_best_responses_gain(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = PublicTree(game)
    values, responses = tree.expected_values(table), tree.best_response_values(table)
    assert float(values.sum()) == pytest.approx(0, abs=1e-12)
    assert bool((responses >= values - 1e-12).all())
    assert nash_conv(game, TabularPolicy(table)) >= -1e-12


@invariant
@given(leducs, seeds)
def test_best_response_is_what_it_says(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    gains = PublicTree(game).best_response_values(table).tolist()
    for player in range(2):
        value, response = best_response(game, TabularPolicy(table), player)
        assert value == pytest.approx(gains[player], abs=1e-12)
        assert expected_value(game, response)[player] == pytest.approx(value, abs=1e-12)
        opponent = game.player_slice[1 - player]
        torch.testing.assert_close(response.table[opponent], table[opponent], rtol=0, atol=1e-15)
        assert bool((response.table[~game.legal] == 0).all())
        mine = response.table[game.player_slice[player]]
        assert bool(((mine == 0) | (mine == 1)).all() & (mine.sum(1) == 1).all())


@invariant
@given(leducs, seeds)
def test_suit_isomorphism_changes_no_value(parameters, seed):
    collapsed, by_card = small_leduc(parameters), small_leduc(parameters, suit_isomorphism=False)
    table = draw_table(collapsed, seed)
    rows = collapsed.infoset(by_card.infoset_node, by_card.infoset_board, by_card.infoset_hand)
    lifted = table[rows]
    few, many = PublicTree(collapsed), PublicTree(by_card)
    torch.testing.assert_close(few.expected_values(table), many.expected_values(lifted), rtol=0, atol=1e-12)
    torch.testing.assert_close(few.best_response_values(table), many.best_response_values(lifted), rtol=0, atol=1e-12)
    torch.testing.assert_close(few.own_reach(table)[rows], many.own_reach(lifted), rtol=0, atol=1e-12)
    summed = torch.zeros_like(table).index_add_(0, rows, many.action_values(lifted))
    torch.testing.assert_close(few.action_values(table), summed, rtol=0, atol=1e-12)


@invariant
@given(leducs, seeds)
def test_permuting_suits_changes_no_value(parameters, seed):
    game = small_leduc(parameters, suit_isomorphism=False)
    assume(parameters["suits"] > 1)
    # Every rank may have its suits permuted in its own way.
    generator = torch.Generator().manual_seed(seed)
    suits = [torch.randperm(game.cards.suits, generator=generator) for _ in range(game.cards.ranks)]
    moved = torch.cat([rank * game.cards.suits + order for rank, order in enumerate(suits)])
    has_board = game.tree.round[game.infoset_node] > 0
    board = torch.where(has_board, moved[game.infoset_board], 0)
    rows = game.infoset(game.infoset_node, board, moved[game.infoset_hand])
    assert sorted(rows.tolist()) == list(range(game.infosets))
    table, tree = draw_table(game, seed), PublicTree(game)
    torch.testing.assert_close(tree.expected_values(table[rows]), tree.expected_values(table), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        tree.best_response_values(table[rows]), tree.best_response_values(table), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(tree.action_values(table[rows]), tree.action_values(table)[rows], rtol=0, atol=1e-12)


@invariant
@given(leducs, st.booleans(), seeds)
def test_own_reach_is_the_product_along_the_path(parameters, iso, seed):
    game = small_leduc(parameters, suit_isomorphism=iso)
    table = draw_table(game, seed)
    tree, rows = game.tree, table.tolist()
    parent, player, round_ = tree.parent.tolist(), tree.player.tolist(), tree.round.tolist()
    where = list(zip(game.infoset_node.tolist(), game.infoset_board.tolist(), game.infoset_hand.tolist(), strict=True))
    number = {place: i for i, place in enumerate(where)}
    for (at, board, hand), reach in zip(where, PublicTree(game).own_reach(table).tolist(), strict=True):
        expected, node = 1.0, at
        while (before := parent[node]) >= 0:
            if player[before] == player[at]:
                infoset = number[before, board if round_[before] == round_[at] else 0, hand]
                expected *= rows[infoset][tree.child[before].tolist().index(node)]
            node = before
        assert reach == pytest.approx(expected, abs=1e-14)


@invariant
@given(leducs, seeds)
def test_values_of_first_infosets_add_up(parameters, seed):
    """Each player's first decision is reached whatever that player does, so its values sum to the game's."""
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = PublicTree(game)
    value = (table * tree.action_values(table)).sum(1)
    for player, depth in ((0, 0), (1, 1)):
        level = game.tree.levels[0][depth]
        first = (game.infoset_node >= level.start) & (game.infoset_node < level.stop)
        assert level.player == player
        assert float(value[first].sum()) == pytest.approx(float(tree.expected_values(table)[player]), abs=1e-12)


@invariant
@given(leducs, seeds)
def test_regrets_add_up_to_the_gain_of_any_deviation(parameters, seed):
    """u(sigma') - u(sigma) = sum over infosets of reach'(I) * sum over actions of sigma'(I, a) * regret(I, a)."""
    game = small_leduc(parameters)
    table, other = draw_table(game, seed), draw_table(game, seed + 1)
    tree = PublicTree(game)
    values = tree.action_values(table)
    regret = (values - (table * values).sum(1, keepdim=True)) * game.legal
    for player in range(2):
        deviation = seated(game, *((other, table) if player == 0 else (table, other)))
        gain = tree.expected_values(deviation)[player] - tree.expected_values(table)[player]
        mine = game.player_slice[player]
        told = tree.own_reach(deviation)[mine] * (deviation * regret).sum(1)[mine]
        assert float(told.sum()) == pytest.approx(float(gain), abs=1e-11)


@invariant
@given(leducs, seeds)
def test_action_values_are_zero_where_illegal_and_ignore_own_play_above(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = PublicTree(game)
    values = tree.action_values(table)
    assert bool((values[~game.legal] == 0).all())
    # What player 0 does at the root weighs nothing in player 0's own counterfactual values below.
    changed = table.clone()
    root = game.infoset_node == 0
    changed[root] = game.uniform[root]
    mine = game.player_slice[0]
    torch.testing.assert_close(tree.action_values(changed)[mine], values[mine], rtol=0, atol=1e-13)
