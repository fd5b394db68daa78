"""Networks: outputs and numbers of parameters, and the features that they read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from repro.config import NetworkConfig
from repro.games import load
from repro.networks.features import feature_columns, infoset_features
from repro.networks.gradients import HandDifferentiated
from repro.networks.modules import Dueling, Normalise, parameter_count
from repro.networks.optimizers import FlatAdam
from tests.helpers.networks import BUILDERS, EVERY_NETWORK, SHAPES, build, columns, problem

# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
def test_outputs_respect_the_legal_mask(kind, architecture, layers, shape):
    network = build(kind, architecture, layers, shape)
    x, legal, _, _ = problem(shape)
    with torch.no_grad():
        output = network(x * 5, legal)
    assert output.shape == legal.shape
    assert bool((output[~legal] == 0).all())
    if kind == "average":
        assert bool((output[legal] > 0).all())
        torch.testing.assert_close(output.sum(1), torch.ones(len(x)), rtol=1e-6, atol=1e-6)
    else:
        assert bool((output[legal] != 0).all())


def test_softmax_survives_large_logits():
    network = build("average", "fc", 0, SHAPES[1])
    x, legal, weight, target = problem(SHAPES[1])
    FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    gradients.prepare(x * 1e4, legal)
    output = gradients.compute(weight, target)
    torch.testing.assert_close(output.sum(1), torch.ones(len(x)), rtol=1e-6, atol=1e-6)
    assert bool((output[~legal] == 0).all())


def test_dueling_head_is_value_plus_centred_advantage():
    torch.manual_seed(3)
    head = Dueling(8, 4)
    x = torch.randn(20, 8)
    _, legal, _, _ = problem((20, 8, 8, 4))
    with torch.no_grad():
        output, value, advantage = head(x, legal), head.value(x)[:, 0], head.advantage(x)
    # The mean over legal actions is V; differences between legal actions are those of A.
    torch.testing.assert_close(output.sum(1) / legal.sum(1), value)
    for row in range(20):
        mine = legal[row]
        expected = value[row] + advantage[row, mine] - advantage[row, mine].mean()
        torch.testing.assert_close(output[row, mine], expected)


def test_normalise_gives_zero_mean_and_unit_variance():
    y = Normalise()(torch.randn(10, 64, generator=torch.Generator().manual_seed(0)) * 3 + 2)
    torch.testing.assert_close(y.mean(1), torch.zeros(10), rtol=0, atol=1e-6)
    torch.testing.assert_close(y.var(1, unbiased=False), torch.ones(10), rtol=1e-4, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_parameter_counts(shape):
    _, f, w, a = shape
    body = (f * w + w) + (w * w + w)
    dueling = 2 * (w * w + w) + (w * a + a) + (w + 1)
    assert parameter_count(build("value", "sd_cfr", None, shape)) == body + dueling
    assert parameter_count(build("average", "sd_cfr", None, shape)) == body + (w * w + w) + (w * a + a)
    c, sets = w + 2, len(columns(f).cards)
    cards = sum((s.stop - s.start) * w + w for s in columns(f).cards)
    cards += (sets * w * c + c) + (c * c + c) + (c * w + w)
    state = (columns(f).state.stop * w + w) + (w * w + w)
    body = cards + state + (2 * w * w + w) + (w * w + w)
    assert parameter_count(build("value", "brown", None, shape)) == body + dueling
    assert parameter_count(build("average", "brown", None, shape)) == body + (w * w + w) + (w * a + a)
    # Embeddings without bias, no dueling head, and one more layer before the output.
    cards -= sets * w
    body = cards + state + (2 * w * w + w) + 2 * (w * w + w)
    for kind in BUILDERS:
        assert parameter_count(build(kind, "deep_cfr", None, shape)) == body + (w * a + a)
        assert parameter_count(build(kind, "fc", 0, shape)) == f * a + a
        for layers in (1, 2, 5):
            expected = (f * w + w) + (layers - 1) * (w * w + w) + (w * a + a)
            assert parameter_count(build(kind, "fc", layers, shape)) == expected


@pytest.mark.parametrize(("card_width", "value", "average"), [(64, 45_764, 41_539), (192, 103_364, 99_139)])
def test_parameter_counts_in_big_leduc(card_width, value, average):
    # As the page of figure 3 has them.
    game = load("big_leduc")
    config = NetworkConfig("brown", 64, None, card_width)
    counts = [parameter_count(build(config, feature_columns(game), game.num_actions)) for build in BUILDERS.values()]
    assert counts == [value, average]


def test_brown_is_the_network_of_the_sd_cfr_code():
    """Written out layer by layer, in the order in which the authors' code declares and applies them."""
    network = build("value", "brown", None, (1, 11, 16, 3))
    layers = [m for m in network.body.modules() if isinstance(m, nn.Linear)]
    private, board, cards_1, cards_2, cards_3, history_1, history_2, final_1, final_2 = layers
    x = torch.randn(5, 11)
    with torch.no_grad():
        cards = torch.cat([private(x[:, 8:9]).relu(), board(x[:, 9:]).relu()], 1)
        cards = cards_1(cards).relu()
        cards = cards_3((cards_2(cards) + cards).relu())
        history = history_1(x[:, :8]).relu()
        history = history_2(history) + history
        final = final_1(torch.cat([cards, history], 1).relu()).relu()
        final = (final_2(final) + final).relu()
        final = (final - final.mean(1, keepdim=True)) / (final.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        torch.testing.assert_close(network.body(x), final, rtol=1e-4, atol=1e-5)


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("kuhn", {}),
        ("kuhn", {"ranks": 7}),
        ("leduc", {}),
        ("leduc", {"suit_isomorphism": False}),
        ("leduc", {"ranks": 5, "max_raises": 4, "bet_sizes": [1.0, 7.0], "ante": 3.0}),
        ("leduc", {"max_raises": 0}),
        ("big_leduc", {}),
    ],
)
def test_features_tell_a_players_infosets_apart_and_are_bounded(name, parameters):
    game = load(name, **parameters)
    features = infoset_features(game)
    assert features.dtype == torch.float32
    assert len(features) == game.infosets
    assert float(features.min()) >= 0.0
    assert float(features.max()) <= 1.0
    for mine in game.player_slice:
        assert len(features[mine].unique(dim=0)) == mine.stop - mine.start


@pytest.mark.parametrize(("name", "sets"), [("kuhn", 1), ("leduc", 2), ("big_leduc", 2)])
def test_columns_say_where_the_cards_are(name, sets):
    game = load(name)
    features, where = infoset_features(game), feature_columns(game)
    assert where.count == features.shape[1]
    assert len(where.cards) == sets
    starts, stops = zip(*((c.start, c.stop) for c in (where.state, *where.cards)), strict=True)
    assert starts == (0, *stops[:-1])
    # A betting node does not know the cards, and the cards do not know the betting.
    assert torch.equal(features[:, where.cards[0]].argmax(1), game.infoset_hand)
    for node in range(game.tree.nodes):
        assert len(features[game.infoset_node == node, where.state].unique(dim=0)) <= 1
    if sets == 2:
        dealt = features[:, where.cards[1]].sum(1) == 1
        assert torch.equal(dealt, game.tree.round[game.infoset_node] == 1)
        assert torch.equal(features[dealt, where.cards[1]].argmax(1), game.infoset_board[dealt])


def test_features_of_leduc_by_hand():
    game = load("leduc")
    features = infoset_features(game)
    # 2 rounds, 2 x 4 positions x 2 bits of history (check, bet, raise, call), 2 chip counts, 3 hands, 3 boards.
    assert features.shape[1] == 2 + 16 + 2 + 3 + 3
    for infoset in range(game.infosets):
        node, player = int(game.infoset_node[infoset]), int(game.infoset_player[infoset])
        row, round_ = features[infoset], int(game.tree.round[node])
        bits = [0.0] * 16
        for r, actions in enumerate(game.tree.histories[node]):
            for i, action in enumerate(actions):
                bits[8 * r + 2 * i + (action == 2)] = 1.0
        chips = game.tree.chips[node]
        # 1 ante, two raises of 2, two raises of 4.
        put_in = [float(chips[player]) / 13, float(chips[1 - player]) / 13]
        hand, board = int(game.infoset_hand[infoset]), int(game.infoset_board[infoset])
        expected = [float(round_ == r) for r in range(2)] + bits + put_in + [float(hand == h) for h in range(3)]
        expected += [float(round_ == 1 and board == b) for b in range(3)]
        torch.testing.assert_close(row, torch.tensor(expected))
