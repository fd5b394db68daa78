"""Games: infosets, betting, chips, deals, and what is said to somebody who asks for an impossible game."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import permutations
from math import sqrt
from typing import Any

import pytest
import torch

from repro.abstraction.abstract_game import abstraction
from repro.errors import ReproError
from repro.games import GAMES, Game, load, register_game
from repro.games.betting import CALL, FOLD, RAISE, SHOWDOWN, BettingRound, BettingRules, compile_tree
from repro.games.one_card import one_card_each
from tests.reference import TINY_GAMES, Reference

BY_CARD: dict[str, Any] = {"suit_isomorphism": False}


def betting_of(game):
    """Per betting node, its history as `Reference` writes it."""
    return ["/".join("".join("fcr"[a] for a in actions) for actions in history) for history in game.tree.histories]


# -- infosets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "infosets"),
    [
        ("kuhn", {}, 12),
        ("kuhn", BY_CARD, 12),
        ("leduc", {}, 288),
        ("leduc", BY_CARD, 936),
        ("big_leduc", {}, 26_376),
        ("leduc", {"ranks": 12, "max_raises": 6}, 26_376),
        ("leduc", {"max_raises": 0}, 2 * (3 + 9)),
        # With one suit nobody can hold the board card's rank.
        ("leduc", {"max_raises": 0, "suits": 1}, 2 * (3 + 6)),
        ("leduc", {"max_raises": 0, "suits": 3, **BY_CARD}, 2 * (9 + 72)),
    ],
)
def test_infoset_counts(name, parameters, infosets):
    game = load(name, **parameters)
    assert game.infosets == infosets
    assert game.legal.shape == game.uniform.shape == (infosets, 3)


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_infoset_numbering(name, parameters):
    game = load(name, **parameters)
    first, second = game.player_slice
    assert (first.start, first.stop, second.stop) == (0, second.start, game.infosets)
    assert set(game.infoset_player[first].tolist()) == {0}
    assert set(game.infoset_player[second].tolist()) == {1}
    columns = (game.infoset_player, game.infoset_node, game.infoset_board, game.infoset_hand)
    listed = list(zip(*(c.tolist() for c in columns), strict=True))
    assert listed == sorted(set(listed))
    assert torch.equal(game.tree.player[game.infoset_node], game.infoset_player)
    seen = set()
    for round_ in range(game.tree.rounds):
        nodes = torch.tensor([n for level in game.tree.levels[round_] for n in range(level.start, level.stop)])
        boards, hands = torch.arange(game.one_card.boards(round_)), torch.arange(game.one_card.hands)
        grid = game.infoset(nodes[:, None, None], boards[:, None], hands)
        for node, board, hand in ((grid >= 0).nonzero()).tolist():
            infoset = int(grid[node, board, hand])
            assert game.infoset_hand[infoset] == game.one_card.hand_class[hand]
            assert game.infoset_board[infoset] == game.one_card.board_class[round_][board]
            seen.add(infoset)
        collides = (grid < 0).all(0)
        assert torch.equal(collides, game.one_card.blocked[round_])
        assert torch.equal((grid < 0).any(0), collides)
    assert seen == set(range(game.infosets))


def test_uniform_splits_evenly_over_legal_actions():
    game = load("leduc")
    assert game.uniform.dtype == torch.float64
    torch.testing.assert_close(game.uniform.sum(1), torch.ones(288, dtype=torch.float64))
    for row, legal in zip(game.uniform.tolist(), game.legal.tolist(), strict=True):
        assert row == [pytest.approx(1 / sum(legal)) if allowed else 0 for allowed in legal]


def test_describe():
    kuhn = load("kuhn")
    assert kuhn.describe(0) == "player 0, hand 0, betting "
    assert kuhn.describe(int(kuhn.infoset(kuhn.tree.child[0, RAISE], torch.tensor(0), torch.tensor(2)))) == (
        "player 1, hand 2, betting raise"
    )
    leduc = load("leduc")
    # Check, bet, call; then the public card, number 3, which is of rank 1.
    node = torch.tensor(0)
    for action in (CALL, RAISE, CALL):
        node = leduc.tree.child[node, action]
    infoset = int(leduc.infoset(node, torch.tensor(3), torch.tensor(5)))
    assert leduc.describe(infoset) == "player 0, hand 2, board 1, betting call raise call / "
    by_card = load("leduc", **BY_CARD)
    infoset = int(by_card.infoset(node, torch.tensor(3), torch.tensor(5)))
    assert by_card.describe(infoset) == "player 0, hand 5, board 3, betting call raise call / "
    for game in (kuhn, leduc, by_card):
        assert len({game.describe(i) for i in range(game.infosets)}) == game.infosets


# -- betting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_betting_tree_equals_plain_python(name, parameters):
    game, reference = load(name, **parameters), Reference(name, **parameters)
    tree, expected = game.tree, reference.histories()
    betting = betting_of(game)
    assert len(betting) == len(expected)
    assert set(betting) == set(expected)
    number = {history: node for node, history in enumerate(betting)}
    for node, history in enumerate(betting):
        spent = expected[history]
        assert tuple(tree.chips[node].tolist()) == spent
        assert tree.round[node] == history.count("/")
        if reference.finished(history):
            assert not tree.legal[node].any()
            assert tree.player[node] == -1
            assert tree.stake[node] == min(spent)
            folder = (len(history.split("/")[-1]) - 1) % 2
            assert tree.winner[node] == (1 - folder if history.endswith("f") else SHOWDOWN)
            continue
        assert tree.winner[node] == -2
        assert tree.stake[node] == 0
        assert tree.player[node] == len(history.split("/")[-1]) % 2
        options = reference.options(history, spent)
        assert tree.legal[node].tolist() == [a in options for a in "fcr"]
        for column, action in enumerate("fcr"):
            after = number[reference.act(history, spent, action)[0]] if action in options else -1
            assert tree.child[node, column] == after
            assert after < 0 or tree.parent[after] == node
    assert tree.parent[0] == -1


@pytest.mark.parametrize("name", sorted(GAMES))
def test_folding_is_illegal_when_nothing_is_owed(name):
    tree = load(name).tree
    decision = tree.player >= 0
    own = tree.chips.gather(1, tree.player.clamp(min=0)[:, None])[:, 0]
    owed = tree.chips.amax(1) - own
    assert torch.equal(tree.legal[decision, FOLD], owed[decision] > 0)
    no_call = ~tree.legal[:, CALL] & decision
    assert no_call.nonzero().flatten().tolist() == ([0] if name in ("fhp", "fhp5") else [])
    # Nobody owes anything where both begin with the same ante.
    assert bool(tree.legal[0, FOLD]) == (load(name).rules.ante[0] < load(name).rules.ante[1])


def test_chips_by_hand():
    game = load("leduc", bet_sizes=(2, 4), ante=1)
    tree = game.tree
    chips = {history: tuple(c) for history, c in zip(betting_of(game), tree.chips.tolist(), strict=True)}
    assert chips[""] == (1, 1)
    assert chips["r"] == (3, 1)
    assert chips["rr"] == (3, 5)
    assert chips["rrc/"] == (5, 5)
    assert chips["rrc/cr"] == (5, 9)
    assert chips["rrc/crr"] == (13, 9)
    assert chips["rrc/crrc"] == (13, 13)
    assert chips["rrc/crrf"] == (13, 9)
    stake = dict(zip(betting_of(game), tree.stake.tolist(), strict=True))
    assert (stake["rrc/crrc"], stake["rrc/crrf"], stake["rf"]) == (13, 9, 1)


def test_levels_cover_the_decisions_in_order():
    for name in GAMES:
        tree = load(name).tree
        covered: list[int] = []
        for round_, levels in enumerate(tree.levels):
            start, stop = tree.round_slice[round_]
            assert set(tree.round[start:stop].tolist()) == {round_}
            for level in levels:
                assert set(tree.player[level.start : level.stop].tolist()) == {level.player}
                covered += range(level.start, level.stop)
        assert covered == (tree.player >= 0).nonzero().flatten().tolist()


def test_unequal_antes_and_first_players():
    """Blinds, as in hold'em: the small blind owes a chip before anybody has acted."""
    rules = BettingRules((1, 2), (BettingRound(2, 1), BettingRound(4, 1, first_player=1)))
    tree = compile_tree(rules)
    assert tree.legal[0].all()
    assert tree.chips[tree.child[0, RAISE]].tolist() == [4, 2]
    assert tree.stake[tree.child[0, FOLD]] == 1
    assert tree.winner[tree.child[0, FOLD]] == 1
    called = tree.child[0, CALL]
    # The big blind has the option to raise.
    assert tree.legal[called].tolist() == [False, True, True]
    assert tree.chips[called].tolist() == [2, 2]
    second_round = tree.child[called, CALL]
    assert tree.round[second_round] == 1
    assert tree.player[second_round] == 1


def test_units():
    assert load("kuhn").chips_per_unit == 1
    assert load("leduc").chips_per_unit == 1
    assert load("leduc", ante=4).chips_per_unit == 4


# -- what a game can do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "exact", "unit", "is_mean", "features"),
    [
        ("kuhn", {}, "sequence_form", "mA/g", True, "classes"),
        ("leduc", {"ante": 4.0}, "sequence_form", "mA/g", True, "classes"),
        ("big_leduc", {}, "sequence_form", "mA/g", True, "classes"),
        ("fhp", {"ranks": 5, "suits": 2}, "boards", "mbb/g", False, "cards"),
        # Equal blinds are no antes.
        ("fhp", {"ranks": 5, "suits": 2, "blinds": (50.0, 50.0)}, "boards", "mbb/g", False, "cards"),
        # Too large to be listed: its boards are still enumerated, in portions.
        ("fhp5", {}, "boards", "mbb/g", False, "cards"),
        ("hunl_pot", {"ranks": 4, "suits": 3}, None, "mbb/g", False, "cards"),
        ("hnlh", {"ranks": 4, "suits": 3}, None, "mbb/g", False, "cards"),
    ],
)
def test_what_a_game_can_do(name, parameters, exact, unit, is_mean, features):
    game = load(name, **parameters)
    assert (game.exact, game.unit, game.exploitability_is_mean) == (exact, unit, is_mean)
    assert game.cards.features == features


def test_one_card_each_with_blinds_is_quoted_in_big_blinds():
    rules = BettingRules((1, 2), (BettingRound(bet=2, max_raises=2),))
    game = Game("blinds", {}, rules, one_card_each(3, 1, (0,), True), chips_per_unit=2.0)
    assert (game.unit, game.exploitability_is_mean) == ("mbb/g", True)


def test_an_abstraction_is_played_and_not_measured():
    game = abstraction(load("fhp", ranks=5, suits=2), buckets=5).abstract
    assert (game.exact, game.unit, game.exploitability_is_mean) == (None, "mbb/g", False)


# -- errors ------------------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("holdem", {}, ["'holdem'", "big_leduc, fhp, fhp5, fhp_limit, hnlh, hunl_pot, kuhn, leduc"]),
    ("Leduc", {}, ["'Leduc'", "big_leduc, fhp, fhp5, fhp_limit, hnlh, hunl_pot, kuhn, leduc"]),
    ("leduc", {"rank": 3}, ["'rank'", "ranks, suits, max_raises, bet_sizes, ante"]),
    ("kuhn", {"suits": 2}, ["'suits'", "ranks"]),
    ("kuhn", {"ranks": 1}, ["ranks is 1", "at least 2"]),
    ("kuhn", {"ranks": 105}, ["105 cards", "2", "104"]),
    ("leduc", {"ranks": 1}, ["ranks is 1", "at least 2"]),
    ("leduc", {"ranks": 2, "suits": 1}, ["2 cards", "3", "104"]),
    ("leduc", {"ranks": 53, "suits": 2}, ["106 cards", "3", "104"]),
    ("leduc", {"suits": 0}, ["suits is 0", "at least 1"]),
    ("leduc", {"suits": -1}, ["suits is -1", "at least 1"]),
    ("leduc", {"ranks": 3.0}, ["ranks is 3.0", "whole number"]),
    ("leduc", {"ranks": "3"}, ["ranks is '3'", "whole number"]),
    ("leduc", {"suits": True}, ["suits is True", "whole number"]),
    ("leduc", {"max_raises": -1}, ["max_raises is -1", "0 to 12"]),
    ("leduc", {"max_raises": 13}, ["max_raises is 13", "0 to 12"]),
    ("leduc", {"bet_sizes": (2, 4, 8)}, ["bet_sizes is (2, 4, 8)", "two positive numbers"]),
    ("leduc", {"bet_sizes": [2]}, ["bet_sizes is (2,)", "two positive numbers"]),
    ("leduc", {"bet_sizes": (2, 0)}, ["bet_sizes is (2, 0)", "two positive numbers"]),
    ("leduc", {"ante": 0}, ["ante is 0", "positive number"]),
    ("leduc", {"ante": -1.5}, ["ante is -1.5", "positive number"]),
    ("big_leduc", {"max_raises": 99}, ["big_leduc", "max_raises is 99", "0 to 12"]),
]


@pytest.mark.parametrize(("name", "parameters", "told"), WRONG)
def test_impossible_games_are_explained_in_one_sentence(name, parameters, told):
    with pytest.raises(ReproError) as error:
        load(name, **parameters)
    message = str(error.value)
    assert message.startswith(f"game {name}") or message.startswith(f"game {name!r}")
    for part in told:
        assert part in message
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"ante": "one"},
        {"ante": None},
        {"ante": float("nan")},
        {"ante": float("inf")},
        {"bet_sizes": 2},
        {"bet_sizes": "24"},
        {"bet_sizes": (2, float("nan"))},
        {"suit_isomorphism": "no"},
    ],
)
def test_values_of_the_wrong_kind_are_explained(parameters):
    with pytest.raises(ReproError, match=next(iter(parameters))):
        load("leduc", **parameters)


def test_parameters_are_kept_with_defaults():
    game = load("leduc", ranks=4, bet_sizes=[1, 3])
    assert game.name == "leduc"
    assert game.parameters == {
        "ranks": 4,
        "suits": 2,
        "max_raises": 2,
        "bet_sizes": (1, 3),
        "ante": 1.0,
        "suit_isomorphism": True,
    }


# -- games from outside the package ------------------------------------------------------------------------------------


@pytest.fixture
def _games_restored() -> Iterator[None]:
    before = dict(GAMES)
    yield
    GAMES.clear()
    GAMES.update(before)


@dataclass(frozen=True)
class Named:
    """Kuhn poker with a parameter of every type but tuples."""

    ranks: int = 3
    chips: float = 1.0
    limit: float | None = None
    isomorphic: bool = True
    title: str = "plain"

    def build(self, name: str) -> Game:
        rules = BettingRules((1, 1), (BettingRound(bet=self.chips, max_raises=1),))
        return Game(name, asdict(self), rules, one_card_each(self.ranks, 1, (0,), self.isomorphic), 1.0)


@dataclass(frozen=True)
class ManySizes(Named):
    sizes: tuple[int, ...] = (1, 2)


@pytest.mark.usefixtures("_games_restored")
def test_a_game_from_outside_is_loaded_by_its_name():
    assert register_game("named")(Named) is Named
    game = load("named", ranks=4, title="fancy")
    assert game.infosets == load("kuhn", ranks=4).infosets
    assert (game.name, game.parameters["title"], game.parameters["chips"]) == ("named", "fancy", 1.0)
    with pytest.raises(ReproError, match=r"^game named: title is 3; text is needed\.$"):
        load("named", title=3)
    register_game("named")(Named)


@pytest.mark.usefixtures("_games_restored")
def test_a_name_is_not_given_to_a_second_game():
    with pytest.raises(ReproError, match=r"^game kuhn is repro\.games\.registry\.Kuhn; .*\.Named needs another"):
        register_game("kuhn")(Named)
    assert load("kuhn").infosets == 12


@pytest.mark.usefixtures("_games_restored")
def test_a_parameter_of_an_unknown_type_is_explained():
    sentence = (
        r"^game many: the parameter sizes is of type tuple\[int, \.\.\.\]; allowed are int, float, bool, str, "
        r"float \| None, tuple\[float, float\], tuple\[int, int\]\.$"
    )
    with pytest.raises(ReproError, match=sentence):
        register_game("many")(ManySizes)
    assert "many" not in GAMES
    # Entered by hand, and asked for another parameter or none.
    GAMES["many"] = ManySizes
    for parameters in ({"sizes": (1, 2)}, {"ranks": 4}, {}):
        with pytest.raises(ReproError, match=sentence):
            load("many", **parameters)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_games_restored")
def test_only_a_dataclass_that_builds_is_a_game():
    @dataclass
    class Nothing:
        ranks: int = 3

    class Plain:
        def build(self, name: str) -> Game:
            return load("kuhn")

    for kind in (Nothing, Plain):
        with pytest.raises(ReproError, match=r"^game odd: .*\.(Nothing|Plain) is no dataclass with a method build\.$"):
            register_game("odd")(kind)  # type: ignore[type-var]


# -- cards -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters", "dealt"),
    [
        ("kuhn", {}, 2),
        ("kuhn", {"ranks": 2}, 2),
        ("kuhn", {"ranks": 6}, 2),
        ("leduc", {}, 3),
        ("leduc", {"suits": 1}, 3),
    ],
)
def test_deals_are_uniform_and_without_replacement(name, parameters, dealt):
    game = load(name, **parameters)
    n = 60_000
    hands, boards = game.one_card.draw(n, torch.Generator().manual_seed(1))
    assert hands.shape == (n, 2)
    assert boards.shape == (n, game.tree.rounds)
    assert hands.dtype == boards.dtype == torch.int64
    assert set(boards[:, 0].tolist()) == {0}
    cards = torch.cat([hands, boards[:, 1:]], 1)
    assert cards.shape[1] == dealt
    possible = set(permutations(range(game.one_card.hands), dealt))
    count = Counter(map(tuple, cards.tolist()))
    assert set(count) <= possible
    expected = n / len(possible)
    chi_square = sum((count[deal] - expected) ** 2 / expected for deal in possible)
    freedom = len(possible) - 1
    assert chi_square < freedom + 5 * sqrt(2 * freedom)


def test_deals_repeat_with_the_seed():
    cards = load("leduc").one_card
    first, again, other = (cards.draw(50, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_strength_by_hand():
    cards = load("leduc").one_card
    # Board: card 0, of rank 0. Its pair beats everything; the deck is rank * 2 + suit.
    kings, queens, pair = cards.strength[0, 4], cards.strength[0, 2], cards.strength[0, 1]
    assert pair > kings > queens
    assert cards.strength[0, 4] == cards.strength[0, 5]
    kuhn = load("kuhn").one_card.strength[0].tolist()
    assert kuhn == sorted(set(kuhn))


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_probabilities_of_deals_sum_to_one(name, parameters):
    cards = load(name, **parameters).one_card
    for blocked, probability in zip(cards.blocked, cards.pair_probability, strict=True):
        free = (~blocked).sum(1)
        assert float((free * (free - 1)).sum()) * probability == pytest.approx(1, abs=1e-12)


def test_to_cpu():
    game = load("leduc")
    assert game.to("cpu") is game
    tree, cards = game.tree.to("cpu"), game.one_card.to("cpu")
    assert torch.equal(tree.child, game.tree.child)
    assert tree.levels == game.tree.levels
    assert tree.histories == game.tree.histories
    assert torch.equal(cards.strength, game.one_card.strength)
    assert [b.device.type for b in cards.blocked] == ["cpu", "cpu"]
    assert cards.board_cards == game.one_card.board_cards


def test_move_reaches_every_tensor():
    """The meta device holds no data, so anything left behind shows."""
    game = load("leduc")
    tree, cards = game.tree.to("meta"), game.one_card.to("meta")
    tensors = [v for v in vars(tree).values() if isinstance(v, torch.Tensor)]
    for value in vars(cards).values():
        tensors += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, torch.Tensor)]
    assert len(tensors) == 8 + 2 + 6 * 2
    assert {t.device.type for t in tensors} == {"meta"}
