"""Betting in Hold'em: nodes, legal actions, chips, raises, all-ins and payoffs.

- fhp's betting tree: written out by hand from the rules of the Deep CFR paper. Numbers of nodes and legal actions: the
  published counts.
- Legal actions, chips, raise sizes, showdowns and payoffs of fhp, fhp_limit, fhp5, hunl_pot and hnlh: PokerKit, an
  independent engine, which plays every line of betting to its end with random cards. It knows blinds, streets, caps on
  raises, pot limits and stacks, but not that the first action may be no call; there the legal actions must be its own
  without that one.
- Sizes of raises and all-ins of whole trees: the formula "the pot after the call is twice what the other has in".
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pokerkit import Automation, BettingStructure, Deck, Opening, StandardHighHand, State, Street

from repro.games import Game, load
from repro.games.betting import ALL_IN, CALL, FOLD, RAISE, SHOWDOWN
from repro.games.holdem import holdem_cards
from tests.helpers.holdem import HOLDEM, cards_in, random_deals
from tests.helpers.reference_poker import betting_of

repeatable = settings(deadline=None, derandomize=True, database=None)


# -- betting -----------------------------------------------------------------------------------------------------------

FHP_NODES: dict[str, tuple[int, str, tuple[int, int]]] = {
    # Player to act (-1: nobody), legal actions, chips in.
    "": (0, "fr", (50, 100)),
    "f": (-1, "", (50, 100)),
    "r": (1, "fc", (300, 100)),
    "rf": (-1, "", (300, 100)),
    "rc/": (1, "cr", (300, 300)),
    "rc/c": (0, "cr", (300, 300)),
    "rc/cc": (-1, "", (300, 300)),
    "rc/cr": (1, "fcr", (900, 300)),
    "rc/crf": (-1, "", (900, 300)),
    "rc/crc": (-1, "", (900, 900)),
    "rc/crr": (0, "fc", (900, 2_700)),
    "rc/crrf": (-1, "", (900, 2_700)),
    "rc/crrc": (-1, "", (2_700, 2_700)),
    "rc/r": (0, "fcr", (300, 900)),
    "rc/rf": (-1, "", (300, 900)),
    "rc/rc": (-1, "", (900, 900)),
    "rc/rr": (1, "fc", (2_700, 900)),
    "rc/rrf": (-1, "", (2_700, 900)),
    "rc/rrc": (-1, "", (2_700, 2_700)),
}

FHP_ENDINGS = {
    # Who wins after a fold (None: a showdown), and what the loser pays.
    "f": (1, 50),
    "rf": (0, 100),
    "rc/cc": (None, 300),
    "rc/crf": (0, 300),
    "rc/crc": (None, 900),
    "rc/crrf": (1, 900),
    "rc/crrc": (None, 2_700),
    "rc/rf": (1, 300),
    "rc/rc": (None, 900),
    "rc/rrf": (0, 900),
    "rc/rrc": (None, 2_700),
}


@pytest.mark.parametrize("name", ["fhp", "fhp5"])
def test_betting_of_fhp_by_hand(name):
    tree, betting = load(name).tree, betting_of(load(name))
    assert len(betting) == len(FHP_NODES)
    assert set(betting) == set(FHP_NODES)
    for node, history in enumerate(betting):
        player, legal, chips = FHP_NODES[history]
        assert tree.player[node] == player
        assert tree.legal[node].tolist() == [a in legal for a in "fcr"]
        assert tuple(tree.chips[node].tolist()) == chips
        assert tree.round[node] == history.count("/")
        if player < 0:
            winner, stake = FHP_ENDINGS[history]
            assert tree.winner[node] == (SHOWDOWN if winner is None else winner)
            assert tree.stake[node] == stake
        else:
            assert tree.winner[node] == -2
            assert tree.stake[node] == 0


def test_chips_of_fhp_limit_by_hand():
    game = load("fhp_limit")
    chips = {history: tuple(c) for history, c in zip(betting_of(game), game.tree.chips.tolist(), strict=True)}
    legal = dict(zip(betting_of(game), game.tree.legal.tolist(), strict=True))
    # Four bets before the flop, of which the big blind is one.
    assert chips["r"] == (200, 100)
    assert chips["rrr"] == (400, 300)
    assert legal["rr"][RAISE]
    assert not legal["rrr"][RAISE]
    assert chips["cr"] == (100, 200)
    assert chips["crrr"] == (300, 400)
    assert legal["c"] == [False, True, True]
    assert not legal["crrr"][RAISE]
    # Four on it.
    assert chips["rrrc/rrrr"] == (800, 700)
    assert legal["rrrc/rrr"][RAISE]
    assert not legal["rrrc/rrrr"][RAISE]
    assert chips["cc/crrrr"] == (400, 500)
    assert chips["cc/crrrrc"] == (500, 500)


@pytest.mark.parametrize(
    ("name", "nodes", "decisions", "actions"),
    [
        ("fhp", 19, [2, 6], [4, 14]),
        ("fhp5", 19, [2, 6], [4, 14]),
        ("fhp_limit", 204, [8, 70], [21, 182]),
    ],
)
def test_numbers_of_nodes_and_actions(name, nodes, decisions, actions):
    tree = load(name).tree
    assert tree.nodes == nodes
    legal = [tree.legal[(tree.round == r) & (tree.player >= 0)] for r in range(2)]
    assert [len(rows) for rows in legal] == decisions
    assert [int(rows.sum()) for rows in legal] == actions


@pytest.mark.parametrize("name", [*HOLDEM, "hnlh"])
def test_players_take_turns(name):
    tree = load(name).tree
    first_player = (0, 1, 1, 1)
    for node, history in enumerate(tree.histories):
        if tree.player[node] >= 0:
            assert tree.player[node] == (first_player[len(history) - 1] + len(history[-1])) % 2
            assert tree.round[node] == len(history) - 1


@pytest.mark.parametrize(
    ("name", "parameters", "stack"),
    [
        ("fhp", {}, float("inf")),
        ("fhp5", {"blinds": (1, 3), "max_raises": (3, 4)}, float("inf")),
        ("hunl_pot", {}, 20_000),
        ("hunl_pot", {"stack": 50_000}, 50_000),
        ("hunl_pot", {"stack": 130}, 130),
        ("hunl_pot", {"stack": 37, "blinds": (1, 2)}, 37),
        ("hunl_pot", {"stack": 7, "blinds": (2, 2)}, 7),
    ],
)
def test_raises_are_of_the_pot_or_all_in(name, parameters, stack):
    tree = load(name, **parameters).tree
    raising = tree.legal[:, RAISE].nonzero().flatten()
    player = tree.player[raising, None]
    other = tree.chips[raising].gather(1, 1 - player)
    # After the call, both have in what the other has; a raise adds both.
    raised = (3 * other).clamp(max=stack)
    assert torch.equal(tree.chips[tree.child[raising, RAISE]].gather(1, player), raised)
    assert torch.equal(tree.chips[tree.child[raising, RAISE]].gather(1, 1 - player), other)
    assert (raised > other).all()
    assert tree.chips.max() <= stack


@pytest.mark.parametrize("stack", [101, 150, 299, 300, 301, 900, 2_500, 20_000])
def test_no_betting_after_an_all_in(stack):
    tree = load("hunl_pot", stack=stack).tree
    all_in = tree.chips == stack
    deciding = tree.player >= 0
    assert all_in.any()
    assert not (all_in.all(1) & deciding).any()
    # Who faces an all-in folds or calls; a call ends the game.
    facing = all_in.any(1) & deciding
    assert torch.equal(tree.legal[facing], torch.tensor([True, True, False]).expand(int(facing.sum()), -1))
    called = tree.child[facing, CALL]
    assert (tree.winner[called] == SHOWDOWN).all()
    assert (tree.stake[called] == stack).all()
    assert (tree.winner[tree.child[facing, FOLD]] == 1 - tree.player[facing]).all()
    # Where nobody is, a raise is always legal: there is no cap.
    assert tree.legal[deciding & ~facing, RAISE].all()


@repeatable
@given(
    ranks=st.integers(2, 6),
    suits=st.integers(2, 4),
    opens=st.booleans(),
    raises=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    blinds=st.tuples(st.integers(1, 50), st.integers(0, 50)),
)
def test_trees_of_any_parameters(ranks, suits, opens, raises, blinds):
    """Nobody has to fold, chips only grow, and caps on raises hold."""
    assume(7 <= ranks * suits <= 12 and (opens or raises[0]))
    small, more = blinds
    parameters = {"ranks": ranks, "suits": suits, "blinds": (small, small + more), "max_raises": raises}
    tree = load("fhp", may_open_with_call=opens, **parameters).tree
    deciding = tree.player >= 0
    assert tree.legal[deciding, CALL:].any(1).all()
    assert tree.legal[deciding, CALL][1:].all()
    assert tree.legal[0].tolist() == [more > 0, opens, raises[0] > 0]
    later = tree.parent >= 0
    assert (tree.chips[later] >= tree.chips[tree.parent[later]]).all()
    assert torch.equal(tree.stake[~deciding], tree.chips[~deciding].amin(1))
    for node, history in enumerate(tree.histories):
        count = [round_.count(RAISE) for round_ in history]
        assert all(made <= most for made, most in zip(count, raises, strict=False))
        if deciding[node]:
            assert bool(tree.legal[node, RAISE]) == (count[-1] < raises[len(history) - 1])


# -- an independent engine ---------------------------------------------------------------------------------------------

POT, FIXED, NO_LIMIT = BettingStructure.POT_LIMIT, BettingStructure.FIXED_LIMIT, BettingStructure.NO_LIMIT

PLENTY = 1_000_000
"""A stack that no line of a game without stacks uses up."""

RULES: dict[str, tuple[BettingStructure, int, tuple[tuple[int, int | None], ...]]] = {
    # What limits a bet, the smallest one, and per street: board cards, most bets and raises.
    "fhp": (POT, 100, ((0, 1), (3, 2))),
    "fhp5": (POT, 100, ((0, 1), (5, 2))),
    "fhp_limit": (FIXED, 100, ((0, 3), (3, 4))),
    "hunl_pot": (POT, 100, ((0, None), (3, None), (1, None), (1, None))),
    "hnlh": (NO_LIMIT, 100, ((0, None), (3, None), (1, None), (1, None))),
}


def pokerkit_state(name: str, stack: int, blinds: tuple[int, int]) -> State:
    """The start of a hand. PokerKit's player 1 has the small blind; he acts first before the flop and last after it."""
    structure, bet, streets = RULES[name]
    automations = set(Automation) - {Automation.HOLE_DEALING, Automation.BOARD_DEALING}
    return State(
        automations=tuple(automations),
        deck=Deck.STANDARD,
        hand_types=(StandardHighHand,),
        streets=tuple(
            Street(False, () if i else (False, False), board, False, Opening.POSITION, min(bet, blinds[1]), most)
            for i, (board, most) in enumerate(streets)
        ),
        betting_structure=structure,
        ante_trimming_status=True,
        raw_antes=0,
        raw_blinds_or_straddles=blinds,
        bring_in=0,
        raw_starting_stacks=stack,
        player_count=2,
    )


def named(cards: list[int]) -> str:
    return "".join("23456789TJQKA"[c // 4] + "cdhs"[c % 4] for c in cards)


class PlayOut:
    """One line of betting in both engines."""

    def __init__(self, game: Game, name: str, stack: int = PLENTY, blinds: tuple[int, int] = (50, 100)) -> None:
        tree = game.tree
        self.forced_open = name in {"fhp", "fhp5"}
        self.name, self.stack, self.blinds = name, stack, blinds
        self.player, self.chips, self.round = tree.player.tolist(), tree.chips.tolist(), tree.round.tolist()
        self.legal, self.child, self.parent = tree.legal.tolist(), tree.child.tolist(), tree.parent.tolist()
        self.stake, self.winner = tree.stake.tolist(), tree.winner.tolist()
        self.endings = [node for node, player in enumerate(self.player) if player < 0]

    def path(self, ending: int) -> list[tuple[int, int]]:
        """Nodes from the root and the action at each."""
        found = []
        while self.parent[ending] >= 0:
            found.append((self.parent[ending], self.child[self.parent[ending]].index(ending)))
            ending = self.parent[ending]
        return found[::-1]

    def play(self, ending: int, deal: list[int], sign: float) -> None:
        """Compare every step on the way to an ending, and what it pays."""
        state = pokerkit_state(self.name, self.stack, self.blinds)
        # Chips by our seats are PokerKit's in reverse.
        state.deal_hole(named(deal[2:4]))
        state.deal_hole(named(deal[:2]))
        board = deal[4:]
        for node, action in self.path(ending):
            assert state.status
            self.compare(state, node)
            if action == FOLD:
                state.fold()
            elif action == CALL:
                state.check_or_call()
            else:
                state.complete_bet_or_raise_to(self.raised_to(state, action))
            while state.can_deal_board():
                street = RULES[self.name][2][state.street_index or 0]
                state.deal_board(named(board[: street[0]]))
                board = board[street[0] :]
        assert not state.status
        winner = self.winner[ending]
        won = sign if winner == SHOWDOWN else 1 - 2 * winner
        assert state.payoffs[::-1] == [self.stake[ending] * won, -self.stake[ending] * won]
        if winner == SHOWDOWN:
            assert not board

    def raised_to(self, state: State, action: int) -> int:
        """What a raise or an all-in makes of the chips bet in this street."""
        most, pot = state.max_completion_betting_or_raising_to_amount, state.pot_completion_betting_or_raising_to_amount
        assert most is not None
        assert pot is not None
        return min(pot, most) if (self.name, action) == ("hnlh", RAISE) else most

    def compare(self, state: State, node: int) -> None:
        """Player to act, round, chips, legal actions, and what each of them costs."""
        me = self.player[node]
        assert state.actor_index == 1 - me
        assert state.street_index == self.round[node]
        assert [self.stack - left for left in state.stacks[::-1]] == self.chips[node]
        assert state.total_pot_amount == sum(self.chips[node])
        legal = [state.can_fold(), state.can_check_or_call(), state.can_complete_bet_or_raise_to()]
        if self.forced_open and node == 0:
            assert legal == [True, True, True]
            legal[CALL] = False
        if self.name == "hnlh":
            # A bet of the pot is one of its own only where it leaves some chips.
            legal.append(legal[RAISE])
            legal[RAISE] &= legal[ALL_IN] and self.raised_to(state, RAISE) < self.raised_to(state, ALL_IN)
        assert self.legal[node] == legal
        for action, allowed in enumerate(legal):
            if not allowed:
                assert self.child[node][action] < 0
                continue
            after = self.chips[self.child[node][action]]
            assert after[1 - me] == self.chips[node][1 - me]
            paid = after[me] - self.chips[node][me]
            if action == FOLD:
                assert paid == 0
            elif action == CALL:
                assert paid == state.checking_or_calling_amount
            else:
                to = self.raised_to(state, action)
                assert paid == to - state.bets[1 - me]
                if RULES[self.name][0] == FIXED:
                    assert to == state.min_completion_betting_or_raising_to_amount


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "parameters", "times"),
    [
        ("fhp", {}, 40),
        ("fhp", {"blinds": (1, 3)}, 4),
        ("fhp5", {}, 40),
        ("fhp_limit", {}, 4),
        ("hunl_pot", {"stack": 20_000}, 1),
        ("hunl_pot", {"stack": 1_000}, 1),
        ("hunl_pot", {"stack": 110}, 15),
        ("hunl_pot", {"stack": 55, "blinds": (1, 2)}, 1),
        ("hnlh", {"stack": 20_000}, 1),
        ("hnlh", {"stack": 1_000}, 1),
        ("hnlh", {"stack": 130}, 15),
    ],
)
def test_every_line_of_betting_in_pokerkit(name, parameters, times):
    game = load(name, **parameters)
    play = PlayOut(game, name, **parameters)
    deals = random_deals(times * len(play.endings), cards_in(game), seed=7)
    # Some of few ranks, so that pots are split now and then.
    deals[::3] = random_deals(len(deals[::3]), holdem_cards(4, 4, cards_in(game).streets), seed=8) + 36
    sign = cards_in(game).dealt(deals).sign.tolist()
    assert set(sign) == {-1, 0, 1}
    for i, deal in enumerate(deals.tolist()):
        play.play(play.endings[i % len(play.endings)], deal, sign[i])
