"""Games by name: what is said to somebody who asks for an impossible one, and games from outside the package."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from repro.common.errors import ReproError
from repro.games import GAMES, Game, load, register_game
from repro.games.betting import BettingRound, BettingRules
from repro.games.one_card import one_card_each

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
