"""Hold'em games: betting, cards, deals, showdowns, and what is said to somebody who asks for an impossible one.

- fhp's betting tree: written out by hand from the rules of the Deep CFR paper. Numbers of nodes, legal actions and
  cells: the published counts.
- Legal actions, chips, raise sizes, showdowns and payoffs of fhp, fhp_limit, fhp5, hunl_pot and hnlh: PokerKit, an
  independent engine, which plays every line of betting to its end with random cards. It knows blinds, streets, caps on
  raises, pot limits and stacks, but not that the first action may be no call; there the legal actions must be its own
  without that one.
- Sizes of raises and all-ins of whole trees: the formula "the pot after the call is twice what the other has in".
- Showdowns of many deals: `phevaluator`.
- Deals: enumeration of all deals of small decks, and chi-square tests.
"""

from collections import Counter
from itertools import combinations, permutations
from math import perm, sqrt
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from phevaluator import evaluate_cards  # type: ignore[import-untyped,attr-defined,unused-ignore]
from pokerkit import Automation, BettingStructure, Deck, Opening, StandardHighHand, State, Street

from repro.errors import ReproError
from repro.games import Game, load
from repro.games.betting import ALL_IN, CALL, FOLD, RAISE, SHOWDOWN
from repro.games.hand_strength import hand_strength
from repro.games.holdem import HoldemCards, board_with_hands, holdem_cards

repeatable = settings(deadline=None, derandomize=True, database=None)

HOLDEM = ("fhp", "fhp_limit", "fhp5", "hunl_pot")

FLOP_DEALS = 1_286_792
"""Classes of (hand, flop)."""


def betting_of(game: Game) -> list[str]:
    """Per betting node, its actions as letters; rounds are divided by "/"."""
    return ["/".join("".join("fcr"[a] for a in actions) for actions in history) for history in game.tree.histories]


def cards_in(game: Game) -> HoldemCards:
    assert isinstance(game.cards, HoldemCards)
    return game.cards


def random_deals(n: int, cards: HoldemCards, seed: int) -> torch.Tensor:
    """`[n, 4 + board]` hands and board."""
    draw = torch.rand(n, cards.ranks * cards.suits, generator=torch.Generator().manual_seed(seed))
    return draw.topk(4 + cards.board_cards[-1], 1).indices


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


def test_infoset_actions_of_fhp_limit():
    """Legal actions of all infosets, of which suit isomorphism loses none."""
    game = load("fhp_limit")
    assert game.cards.cells == (169, FLOP_DEALS)
    cells = torch.tensor(game.cards.cells)[game.tree.round]
    total = int((game.tree.legal.sum(1) * cells).sum())
    assert total == 169 * 21 + FLOP_DEALS * 182 == 234_199_693
    assert game.infosets == 169 * 8 + FLOP_DEALS * 70


def test_infosets_of_fhp():
    game = load("fhp")
    assert game.cards.cells == (169, FLOP_DEALS)
    assert game.infosets == 169 * 2 + FLOP_DEALS * 6
    assert game.listed
    assert not load("fhp5").listed
    assert not load("hunl_pot").listed
    with pytest.raises(ReproError, match=r"game hunl_pot has .* infosets; tables can list .* at most"):
        _ = load("hunl_pot").infoset_node
    with pytest.raises(ReproError, match="game is fhp"):
        _ = game.one_card


@pytest.mark.parametrize("name", HOLDEM)
def test_infosets_are_node_and_cell(name):
    game = load(name)
    generator = torch.Generator().manual_seed(1)
    decisions = (game.tree.player >= 0).nonzero().flatten()
    node = decisions[torch.randint(len(decisions), (5_000,), generator=generator)]
    cells = torch.tensor(game.cards.cells)[game.tree.round[node]]
    cell = (torch.rand(5_000, generator=generator, dtype=torch.float64) * cells).long()
    # The first and last one of each.
    cell[:1_000], cell[1_000:2_000] = 0, cells[1_000:2_000] - 1
    infoset = game.first_infoset[node] + cell
    assert torch.equal(game.locate(infoset)[0], node)
    assert torch.equal(game.locate(infoset)[1], cell)
    assert torch.equal(game.legal_at(infoset), game.tree.legal[node])
    first, second = game.player_slice
    assert (first.start, first.stop, second.stop) == (0, second.start, game.infosets)
    assert torch.equal((infoset >= second.start).long(), game.tree.player[node])


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


# -- cards and deals ---------------------------------------------------------------------------------------------------


def chi_square_fits(count: Counter, probability: dict[Any, float]) -> bool:
    n = count.total()
    assert min(probability.values()) * n >= 5
    assert set(count) <= set(probability)
    value = sum((count[outcome] - n * p) ** 2 / (n * p) for outcome, p in probability.items())
    freedom = len(probability) - 1
    return value < freedom + 5 * sqrt(2 * freedom)


def drawn_cards(monkeypatch: pytest.MonkeyPatch, game: Game, n: int, seed: int) -> torch.Tensor:
    """The cards `[n, 4 + board]` of what `deal` returns."""
    seen: list[torch.Tensor] = []
    dealt = HoldemCards.dealt

    def watch(self: HoldemCards, cards: torch.Tensor) -> Any:
        seen.append(cards)
        return dealt(self, cards)

    with monkeypatch.context() as patch:
        patch.setattr(HoldemCards, "dealt", watch)
        assert len(game.cards.deal(n, torch.Generator().manual_seed(seed))) == n
    (cards,) = seen
    return cards


@pytest.mark.parametrize("parameters", [{"ranks": 7, "suits": 1}, {"ranks": 4, "suits": 2}])
def test_draws_of_small_decks_are_uniform_and_without_replacement(monkeypatch, parameters):
    game = load("fhp", **parameters)
    deck = parameters["ranks"] * parameters["suits"]
    possible = perm(deck, 7)
    cards = drawn_cards(monkeypatch, game, 10 * possible, seed=1)
    assert cards.shape == (10 * possible, 7)
    assert all(len(set(deal)) == 7 for deal in cards[:1_000].tolist())
    uniform = dict.fromkeys(permutations(range(deck), 7), 1 / possible)
    assert chi_square_fits(Counter(map(tuple, cards.tolist())), uniform)


@pytest.mark.parametrize("name", HOLDEM)
def test_draws_of_the_full_deck_are_uniform_and_without_replacement(monkeypatch, name):
    cards = drawn_cards(monkeypatch, load(name), 20_000, seed=2)
    dealt = {"fhp": 7, "fhp_limit": 7, "fhp5": 9, "hunl_pot": 9}[name]
    assert cards.shape == (20_000, dealt)
    ordered = cards.sort(1).values
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    assert 0 == int(ordered.min()) < int(ordered.max()) == 51
    for column in cards.unbind(1):
        assert chi_square_fits(Counter(column.tolist()), dict.fromkeys(range(52), 1 / 52))
    # Two cards of different owners.
    for a, b in [(0, 2), (1, 4), (3, dealt - 1), (4, dealt - 1)]:
        pairs = Counter(zip(cards[:, a].tolist(), cards[:, b].tolist(), strict=True))
        assert chi_square_fits(pairs, dict.fromkeys(permutations(range(52), 2), 1 / (52 * 51)))


@pytest.mark.parametrize("parameters", [{"ranks": 4, "suits": 2}, {"ranks": 2, "suits": 4}])
def test_deals_have_the_distribution_of_all_deals(parameters):
    cards = cards_in(load("fhp", **parameters))

    def outcomes(deals):
        columns = [*deals.cells.flatten(1).unbind(1), deals.sign]
        return Counter(zip(*(c.tolist() for c in columns), strict=True))

    everything = torch.tensor(list(permutations(range(8), 7)))
    possible = outcomes(cards.dealt(everything))
    probability = {outcome: count / len(everything) for outcome, count in possible.items()}
    sampled = outcomes(cards.deal(200_000, torch.Generator().manual_seed(3)))
    assert chi_square_fits(sampled, probability)


@pytest.mark.parametrize("name", HOLDEM)
def test_form_of_deals(name):
    game = load(name)
    first, again, other = (game.cards.deal(300, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert len(first) == 300
    assert first.cells.shape == (300, 2, game.tree.rounds)
    assert (first.cells.dtype, first.sign.dtype) == (torch.int64, torch.float32)
    assert torch.equal(first.cells, again.cells)
    assert torch.equal(first.sign, again.sign)
    assert not torch.equal(first.cells, other.cells)
    assert (first.cells >= 0).all()
    assert (first.cells < torch.tensor(game.cards.cells)).all()
    assert len(game.cards.deal(0, torch.Generator())) == 0


@pytest.mark.parametrize(("name", "streets"), [("fhp", (0, 3)), ("fhp5", (0, 5)), ("hunl_pot", (0, 3, 1, 1))])
def test_cells_of_deals_ignore_suits_and_order(name, streets):
    cards = cards_in(load(name))
    assert cards.streets == streets
    n = 20_000
    dealt = random_deals(n, cards, seed=5)
    deals = cards.dealt(dealt)
    generator = torch.Generator().manual_seed(6)
    renaming = torch.rand(n, 4, generator=generator).argsort(1)
    renamed = dealt // 4 * 4 + renaming.gather(1, dealt % 4)
    for player in range(2):
        hand, at = renamed[:, 2 * player : 2 * player + 2].flip(1), 4
        board = renamed[:, :0]
        for round_, public in enumerate(streets):
            # Cards of a street in another order.
            street = renamed[:, at : at + public]
            board = torch.cat([board, street[:, torch.randperm(public, generator=generator)]], 1)
            at += public
            cell = cards.cell(round_, torch.cat([board, hand], 1))
            assert torch.equal(cell, deals.cells[:, player, round_])
            found = cards.cards_of_cells(round_, cell)
            assert torch.equal(cards.cell(round_, found), cell)
            # The ranks of each street and of the hand are what they were.
            start = 0
            for size in (*streets[1 : round_ + 1], 2):
                ours = torch.cat([board, hand], 1)[:, start : start + size] // 4
                theirs = found[:, start : start + size] // 4
                assert torch.equal(ours.sort(1).values, theirs.sort(1).values)
                start += size


@pytest.mark.parametrize("name", HOLDEM)
def test_players_may_swap_hands(name):
    cards = cards_in(load(name))
    dealt = random_deals(20_000, cards, seed=9)
    swapped = torch.cat([dealt[:, 2:4], dealt[:, :2], dealt[:, 4:]], 1)
    ours, theirs = cards.dealt(dealt), cards.dealt(swapped)
    assert torch.equal(ours.sign, -theirs.sign)
    assert torch.equal(ours.cells, theirs.cells.flip(1))
    assert set(ours.sign.tolist()) == {-1, 0, 1}


@pytest.mark.parametrize("name", HOLDEM)
def test_showdowns_against_phevaluator(name):
    cards = cards_in(load(name))
    dealt = random_deals(20_000, cards, seed=11)
    expected = []
    for deal in dealt.tolist():
        # Its lower ranks are better.
        first, second = (evaluate_cards(*deal[2 * p : 2 * p + 2], *deal[4:]) for p in range(2))
        expected.append((first < second) - (first > second))
    assert cards.dealt(dealt).sign.tolist() == expected


@pytest.mark.parametrize(("ranks", "suits"), [(5, 4), (6, 2), (9, 1), (12, 3)])
def test_small_decks_keep_the_highest_ranks(ranks, suits):
    cards = cards_in(load("fhp", ranks=ranks, suits=suits))
    dealt = random_deals(2_000, cards, seed=12)
    for player in range(2):
        seen = torch.cat([dealt[:, 2 * player : 2 * player + 2], dealt[:, 4:]], 1)
        rank, suit = seen // suits + 13 - ranks, seen % suits
        assert torch.equal(cards.strength(seen), hand_strength(rank, suit))
    assert cards.describe(0, int(cards.cell(0, torch.tensor([[ranks * suits - 1, 0]])))).startswith("hand ")
    top = cards.cell(0, torch.tensor([[(ranks - 1) * suits, (ranks - 2) * suits]]))
    assert cards.describe(0, int(top)) == "hand KcAc"


def test_describe():
    game = load("fhp")
    cards = cards_in(game)
    hands = torch.tensor(list(combinations(range(52), 2)))
    names = {cards.describe(0, cell) for cell in cards.cell(0, hands).unique().tolist()}
    assert len(names) == 169
    assert {"hand AcAd", "hand KcAc", "hand KdAc", "hand 2c2d"} <= names
    # Ace of hearts, king of spades; on the board seven of spades, eight and nine of hearts.
    seen = torch.tensor([[5 * 4 + 3, 6 * 4 + 2, 7 * 4 + 2, 11 * 4 + 3, 12 * 4 + 2]])
    cell = int(cards.cell(1, seen))
    assert cards.describe(1, cell) == "hand KdAc, board 7d8c9c"
    node = betting_of(game).index("rc/c")
    infoset = int(game.first_infoset[node]) + cell
    assert game.describe(infoset) == "player 0, hand KdAc, board 7d8c9c, betting raise call / call"


def test_board_with_hands():
    boards = torch.tensor([[0, 1, 2], [3, 4, 5]])
    hands = torch.tensor(list(combinations(range(6), 2)))
    pairs = board_with_hands(boards, hands).tolist()
    assert pairs == [[0, 1, 2, *hand] for hand in ([3, 4], [3, 5], [4, 5])] + [
        [3, 4, 5, *hand] for hand in ([0, 1], [0, 2], [1, 2])
    ]


def test_move_reaches_every_tensor():
    """The meta device holds no data, so anything left behind shows. Not every round has a list of cells."""
    cards = cards_in(load("hunl_pot"))
    assert [codes is None for codes in cards.codes] == [False, False, True, True]
    moved = cards.to("meta")
    assert [None if codes is None else codes.device.type for codes in moved.codes] == ["meta", "meta", None, None]
    assert (moved.streets, moved.board_cards, moved.cells) == (cards.streets, cards.board_cards, cards.cells)


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fhp", {"flop_cards": 3, "bet": None, "max_raises": (1, 2), "may_open_with_call": False}),
        ("fhp5", {"flop_cards": 5, "bet": None, "max_raises": (1, 2), "may_open_with_call": False}),
        ("fhp_limit", {"flop_cards": 3, "bet": 100.0, "max_raises": (3, 4), "may_open_with_call": True}),
        ("hunl_pot", {"stack": 20_000.0}),
        ("hnlh", {"stack": 20_000.0}),
    ],
)
def test_defaults(name, expected):
    game = load(name)
    assert game.parameters == {"ranks": 13, "suits": 4, "blinds": (50.0, 100.0), **expected}
    assert game.chips_per_unit == 100
    assert load(name, blinds=[40, 80]).chips_per_unit == 80


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("fhp", {"ranks": 1}, ["ranks is 1", "2 to 13"]),
    ("fhp", {"ranks": 14}, ["ranks is 14", "2 to 13"]),
    ("fhp", {"ranks": 13.0}, ["ranks is 13.0", "whole number"]),
    ("fhp", {"suits": 0}, ["suits is 0", "1 to 4"]),
    ("fhp", {"suits": 5}, ["suits is 5", "1 to 4"]),
    ("fhp", {"suits": True}, ["suits is True", "whole number"]),
    ("fhp", {"ranks": 3, "suits": 2}, ["6 cards", "7 are dealt"]),
    ("fhp5", {"ranks": 2, "suits": 4}, ["8 cards", "9 are dealt"]),
    ("hunl_pot", {"ranks": 8, "suits": 1}, ["8 cards", "9 are dealt"]),
    ("fhp", {"flop_cards": 2}, ["flop_cards is 2", "3 to 5"]),
    ("fhp", {"flop_cards": 6}, ["flop_cards is 6", "3 to 5"]),
    ("fhp", {"flop_cards": -1}, ["flop_cards is -1", "3 to 5"]),
    ("fhp", {"flop_cards": None}, ["flop_cards is None", "whole number"]),
    ("fhp", {"bet": 0}, ["bet is 0", "positive"]),
    ("fhp_limit", {"bet": -100.0}, ["bet is -100.0", "positive"]),
    ("fhp_limit", {"bet": "pot"}, ["bet is 'pot'", "a number or null"]),
    ("fhp_limit", {"bet": float("inf")}, ["bet is inf", "a number or null"]),
    ("fhp_limit", {"bet": True}, ["bet is True", "a number or null"]),
    ("fhp", {"max_raises": (1, 13)}, ["max_raises is (1, 13)", "0 to 12"]),
    ("fhp", {"max_raises": [-1, 2]}, ["max_raises is (-1, 2)", "0 to 12"]),
    ("fhp", {"max_raises": (1, 2, 3)}, ["max_raises is (1, 2, 3)", "two whole numbers"]),
    ("fhp", {"max_raises": 2}, ["max_raises is 2", "two whole numbers"]),
    ("fhp", {"max_raises": (1.0, 2.0)}, ["max_raises is (1.0, 2.0)", "two whole numbers"]),
    ("fhp", {"may_open_with_call": 0}, ["may_open_with_call is 0", "true or false"]),
    ("fhp", {"blinds": (0, 100)}, ["blinds is (0, 100)", "positive"]),
    ("fhp", {"blinds": (100, 50)}, ["blinds is (100, 50)", "not above the big one"]),
    ("fhp", {"blinds": (50,)}, ["blinds is (50,)", "two positive numbers"]),
    ("hunl_pot", {"blinds": (float("nan"), 100)}, ["blinds is (nan, 100)", "two positive numbers"]),
    ("hunl_pot", {"stack": 100}, ["stack is 100", "more than the big blind", "500"]),
    ("hunl_pot", {"stack": -1}, ["stack is -1", "more than the big blind"]),
    ("hunl_pot", {"stack": 50_001}, ["stack is 50001", "500"]),
    ("hunl_pot", {"stack": float("inf")}, ["stack is inf", "a finite number"]),
    ("hunl_pot", {"stack": None}, ["stack is None", "a finite number"]),
    ("hunl_pot", {"flop_cards": 3}, ["'flop_cards'", "ranks, suits, stack, blinds"]),
    ("fhp", {"stack": 1_000}, ["'stack'", "ranks, suits, flop_cards, bet, max_raises, may_open_with_call, blinds"]),
]


@pytest.mark.parametrize(("name", "parameters", "told"), WRONG)
def test_impossible_games_are_explained_in_one_sentence(name, parameters, told):
    with pytest.raises(ReproError) as error:
        load(name, **parameters)
    message = str(error.value)
    assert message.startswith(f"game {name}")
    for part in told:
        assert part in message
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message


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
