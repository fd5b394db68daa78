"""A network's answers about many infosets: the same as its module's, whichever way they come."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from repro.config import NetworkConfig
from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.games import Game, load
from repro.networks import answers as module
from repro.networks.answers import answers
from repro.networks.card_programs import CardAnswers
from repro.networks.inputs import holdem_features, network_inputs
from repro.networks.modules import average_network, value_network
from tests.helpers.draws import seeded
from tests.helpers.holdem import drawn_infosets, game_of

NETWORK = NetworkConfig("deep_cfr", 16, None, 24)


def network_of(game: Game, average: bool, architecture: NetworkConfig = NETWORK) -> nn.Module:
    torch.manual_seed(3)
    return (average_network if average else value_network)(architecture, network_inputs(game)[1], game.num_actions)


def whole(game: Game, network: nn.Module, infosets: Tensor) -> Tensor:
    """All answers, each of which must come once; and the legal mask with them."""
    found = torch.full((len(infosets), game.num_actions), torch.nan)
    for rows, output, legal in answers(network, network_inputs(game)[0], infosets):
        assert found[rows].isnan().all()
        assert torch.equal(legal, game.legal_at(infosets[rows]))
        found[rows] = output
    return found


def expected(game: Game, network: nn.Module, infosets: Tensor) -> Tensor:
    with torch.no_grad():
        return network(*network_inputs(game)[0](infosets))


@pytest.fixture
def ways(monkeypatch):
    """Which form of the compiled answers was asked."""
    found: list[str] = []
    for name in ("of_rows", "of_pairs"):
        original = getattr(CardAnswers, name)

        def asked(self, *arguments, name=name, original=original):
            found.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(CardAnswers, name, asked)
    return found


@pytest.mark.parametrize("key", ["fhp", "fhp_limit", "small_hunl"])
@pytest.mark.parametrize("average", [False, True])
def test_rows_in_any_order(key, average, ways):
    game = game_of(key)
    infosets, _, _ = drawn_infosets(game, 700, seed=2)
    network = network_of(game, average)
    torch.testing.assert_close(whole(game, network, infosets), expected(game, network, infosets), rtol=1e-4, atol=1e-5)
    assert set(ways) == {"of_rows"}


@pytest.mark.parametrize("average", [False, True])
def test_all_pairs_of_nodes_and_cells(average, ways, monkeypatch):
    # So that there are several portions, and the last is shorter.
    monkeypatch.setattr(module, "_ANSWERS_AT_ONCE", 30_000)
    game = load("fhp_limit")
    form = HoldemForm(game, sample_boards(game, 2, seeded(0)))
    rows = form.infosets[form.player_slice[1]]
    late = rows[game.tree.round[game.locate(rows)[0]] == 1]
    network = network_of(game, average)
    assert len(late) > 1 << 15
    torch.testing.assert_close(whole(game, network, late), expected(game, network, late), rtol=1e-4, atol=1e-5)
    assert set(ways) == {"of_pairs"}
    ways.clear()
    shuffled = late[torch.randperm(len(late), generator=seeded(1))]
    torch.testing.assert_close(whole(game, network, shuffled), expected(game, network, shuffled), rtol=1e-4, atol=1e-5)
    assert set(ways) == {"of_rows"}


def test_two_rounds_are_not_pairs(ways):
    game = load("fhp_limit")
    form = HoldemForm(game, sample_boards(game, 2, seeded(0)))
    rows = form.infosets[form.player_slice[0]]
    network = network_of(game, average=False)
    torch.testing.assert_close(whole(game, network, rows), expected(game, network, rows), rtol=1e-4, atol=1e-5)
    assert set(ways) == {"of_rows"}


@pytest.mark.parametrize("architecture", ["fc", "brown"])
def test_networks_without_a_compiled_form(architecture, ways):
    game = game_of("small_fhp")
    network = network_of(game, False, NetworkConfig(architecture, 16, 2 if architecture == "fc" else None))
    infosets = torch.arange(game.infosets)
    assert torch.equal(whole(game, network, infosets), expected(game, network, infosets))
    assert ways == []


def test_no_infosets():
    game = game_of("small_fhp")
    assert len(whole(game, network_of(game, False), torch.arange(0))) == 0


def test_games_whose_features_are_looked_up():
    game = load("leduc")
    network = network_of(game, True, NetworkConfig("sd_cfr", 16))
    infosets = torch.arange(game.infosets)
    assert torch.equal(whole(game, network, infosets), expected(game, network, infosets))


def test_the_table_of_cards_is_that_of_the_features():
    """Each numbered card has the columns that the features count."""
    game = game_of("small_hunl")
    features = holdem_features(game)
    infosets, _, _ = drawn_infosets(game, 100, seed=5)
    cards, nodes = features.numbered_cards(infosets)
    x, _ = features.rows(infosets)
    assert torch.equal(nodes, game.locate(infosets)[0])
    deck = len(features.card_columns)
    for row, numbered in zip(x, cards.tolist(), strict=True):
        counted = torch.zeros_like(row)
        counted[features.columns.state] = row[features.columns.state]
        for number in (n for n in numbered if n >= 0):
            start = features.columns.cards[number // deck].start
            counted[start + torch.from_numpy(features.card_columns[number % deck])] += 1
        assert torch.equal(counted, row)
