"""Networks, their hand-written gradients, the flat optimiser and the features."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.memory import Minibatch
from repro.algorithms.regression import fit
from repro.config import NetworkConfig
from repro.games import load
from repro.networks.features import Columns, feature_columns, infoset_features
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.modules import (
    Dueling,
    MaskedLinear,
    MaskedSoftmax,
    Merge,
    Network,
    Normalise,
    Residual,
    average_network,
    parameter_count,
    value_network,
)
from repro.networks.optimizers import FlatAdam
from repro.networks.rules import MergeRule

BUILDERS = {"value": value_network, "average": average_network}
ARCHITECTURES = [("deep_cfr", None), ("brown", None), ("sd_cfr", None), ("fc", 0), ("fc", 1), ("fc", 3)]
EVERY_NETWORK = [(kind, *architecture) for kind in BUILDERS for architecture in ARCHITECTURES]
SHAPES = [(1, 5, 8, 3), (7, 26, 64, 3), (40, 3, 4, 2), (144, 11, 16, 4)]
"""Rows, features, width, actions."""


def build(kind: str, architecture: str, layers: int | None, shape: tuple[int, int, int, int], seed: int = 0) -> Network:
    _, features, width, actions = shape
    card_width = width + 2 if architecture in ("deep_cfr", "brown") else None
    torch.manual_seed(seed)
    return BUILDERS[kind](NetworkConfig(architecture, width, layers, card_width), columns(features), actions)


def columns(features: int) -> Columns:
    """One column of private cards, two of the board where there are that many, the rest state."""
    if features == 3:
        return Columns(slice(0, 2), (slice(2, 3),))
    return Columns(slice(0, features - 3), (slice(features - 3, features - 2), slice(features - 2, features)))


def problem(shape: tuple[int, int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, legal mask with at least one legal action per row, weights (some of them zero) and targets."""
    rows, features, _, actions = shape
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=draw)
    legal = torch.rand(rows, actions, generator=draw) < 0.5
    legal[torch.arange(rows), torch.randint(actions, (rows,), generator=draw)] = True
    weight = torch.rand(rows, 1, generator=draw)
    if rows > 1:
        weight[0] = 0.0
    # Targets at illegal actions are not zero here; they must have no influence.
    return x, legal, weight, torch.randn(rows, actions, generator=draw)


def exact_gradients(
    network: Network, x: Tensor, legal: Tensor, weight: Tensor, target: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients in float64 from the loss written down in `Gradients`, by torch's autograd."""
    exact = copy.deepcopy(network).double()
    exact.zero_grad()
    output = exact(x.double(), legal)
    ((output - target.double()).square() * weight.double() / 2).sum().backward()
    return output.detach(), [p.grad for p in exact.parameters() if p.grad is not None]


def assert_same_gradients(network: Network, expected: list[Tensor]) -> None:
    largest = max(float(g.abs().max()) for g in expected)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.double(), gradient, rtol=1e-4, atol=1e-5 * largest)


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_gradients_equal_float64_autograd(rule, kind, architecture, layers, shape):
    network = build(kind, architecture, layers, shape)
    x, legal, weight, target = problem(shape)
    expected_output, expected = exact_gradients(network, x, legal, weight, target)
    FlatAdam(network, 1e-3, 1.0)
    gradients = rule(network)
    gradients.prepare(x, legal)
    output = gradients.compute(weight, target)
    torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
    assert any(bool(g.abs().max() > 0) for g in expected)
    assert_same_gradients(network, expected)


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
def test_hand_differentiation_starts_afresh_and_leaves_its_inputs_alone(kind, architecture, layers):
    # Its buffers are reused between calls and reallocated when the number of rows changes.
    network = build(kind, architecture, layers, SHAPES[1])
    FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    for seed, rows in enumerate((7, 7, 12, 3)):
        inputs = problem((rows, *SHAPES[1][1:]), seed)
        before = [t.clone() for t in inputs]
        gradients.prepare(*inputs[:2])
        for _ in range(2):
            gradients.compute(*inputs[2:])
            assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))
            assert_same_gradients(network, exact_gradients(network, *inputs)[1])


@pytest.mark.parametrize("kind", BUILDERS)
def test_rows_of_weight_zero_and_targets_of_illegal_actions_do_not_matter(kind):
    network = build(kind, "sd_cfr", None, SHAPES[1])
    optimizer = FlatAdam(network, 1e-3, 1.0)
    assert optimizer.flat.grad is not None
    x, legal, weight, target = problem(SHAPES[1])
    gradients = HandDifferentiated(network)
    gradients.prepare(x, legal)
    gradients.compute(weight, target)
    before = optimizer.flat.grad.clone()
    changed = target.masked_fill(~legal, 100.0)
    changed[0] = 50.0
    gradients.compute(weight, changed)
    torch.testing.assert_close(optimizer.flat.grad, before, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("game", "distinct"), [("leduc", 12 + 18), ("big_leduc", 156 + 98)])
@pytest.mark.parametrize("architecture", ["deep_cfr", "brown"])
@pytest.mark.parametrize("kind", BUILDERS)
def test_branches_run_on_the_distinct_rows_of_a_table(kind, architecture, game, distinct):
    game = load(game)
    mine = game.player_slice[1]
    x, legal = infoset_features(game)[mine], game.legal[mine]
    torch.manual_seed(0)
    network = BUILDERS[kind](NetworkConfig(architecture, 8, None, 10), feature_columns(game), game.num_actions)
    FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    gradients.prepare(x, legal)
    merge = gradients._layers[0]
    assert isinstance(merge, MergeRule)
    assert sum(len(rows) for rows, _ in merge.distinct) == distinct
    draw = torch.Generator().manual_seed(1)
    for rows in (torch.arange(len(x)), torch.randint(len(x), (50,), generator=draw), torch.tensor([3])):
        weight, target = torch.rand(len(rows), 1, generator=draw), torch.randn(len(rows), 3, generator=draw)
        expected_output, expected = exact_gradients(network, x[rows], legal[rows], weight, target)
        if len(rows) < len(x):
            gradients.select(rows)
        output = gradients.compute(weight, target)
        torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
        assert_same_gradients(network, expected)
    # A table that does not repeat itself is not worth it, and the one before must be forgotten.
    other = torch.randn(9, x.shape[1], generator=draw)
    gradients.prepare(other, legal[:9])
    assert not merge.distinct
    weight, target = torch.rand(9, 1, generator=draw), torch.randn(9, 3, generator=draw)
    gradients.compute(weight, target)
    assert_same_gradients(network, exact_gradients(network, other, legal[:9], weight, target)[1])


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_selected_rows_are_those_of_the_table(rule, kind, architecture, layers):
    network = build(kind, architecture, layers, SHAPES[3])
    FlatAdam(network, 1e-3, 1.0)
    x, legal, weight, target = problem(SHAPES[3])
    gradients = rule(network)
    gradients.prepare(x, legal)
    for rows in (torch.tensor([7, 2, 2, 140]), torch.tensor([5])):
        gradients.select(rows)
        gradients.compute(weight[rows], target[rows])
        assert_same_gradients(network, exact_gradients(network, x[rows], legal[rows], weight[rows], target[rows])[1])


def test_networks_of_other_modules_go_through_autograd():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(26, 8), nn.Tanh(), nn.Linear(8, 3))
    network = Network(body, MaskedLinear())
    inputs = problem(SHAPES[1])
    _, expected = exact_gradients(network, *inputs)
    FlatAdam(network, 1e-3, 1.0)
    gradients = gradients_of(network)
    assert isinstance(gradients, Autograd)
    gradients.prepare(*inputs[:2])
    gradients.compute(*inputs[2:])
    assert_same_gradients(network, expected)
    ours = build("value", "sd_cfr", None, SHAPES[1])
    FlatAdam(ours, 1e-3, 1.0)
    assert isinstance(gradients_of(ours), HandDifferentiated)


# -- optimiser -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clip_norm", "binding"), [(1.0, "always"), (30.0, "sometimes"), (1e6, "never")])
def test_flat_adam_equals_torch_adam_with_clipping(clip_norm, binding):
    plain = build("value", "sd_cfr", None, SHAPES[1])
    flat = copy.deepcopy(plain)
    mine = FlatAdam(flat, 3e-3, clip_norm)
    reference = torch.optim.Adam(plain.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(1)
    bound = []
    # Adam hardly notices one scale for all gradients, hence scales that differ by step.
    for scale in (1.0, 0.1, 10.0, 0.3, 0.05, 3.0):
        for p, q in zip(plain.parameters(), flat.parameters(), strict=True):
            p.grad = scale * torch.randn(p.shape, generator=draw)
            assert q.grad is not None
            q.grad.copy_(p.grad)
        norm = nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)
        bound.append(bool(norm > clip_norm))
        reference.step()
        mine.update()
        for p, q in zip(plain.parameters(), flat.parameters(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)
    assert {"always": all(bound), "never": not any(bound), "sometimes": len(set(bound)) == 2}[binding]


def test_clipping_changes_the_outcome():
    # Without this the test above could pass with an optimiser and a reference that both ignore the norm.
    outcomes = []
    for clip_norm in (1.0, 1e6):
        network = build("value", "fc", 1, SHAPES[0])
        optimizer = FlatAdam(network, 3e-3, clip_norm)
        assert optimizer.flat.grad is not None
        for scale in (1.0, 10.0):
            optimizer.flat.grad.copy_(scale * torch.linspace(-1, 1, len(optimizer.flat)))
            optimizer.update()
        outcomes.append(optimizer.flat.detach().clone())
    assert float((outcomes[0] - outcomes[1]).abs().max()) > 1e-4


def test_reset_forgets_the_moments():
    network = build("value", "fc", 1, SHAPES[0])
    optimizer = FlatAdam(network, 1e-2, 10.0)
    gradient = optimizer.flat.grad
    assert gradient is not None
    gradient.fill_(1.0)
    optimizer.update()
    first = optimizer.flat.detach().clone()
    optimizer.reset()
    gradient.fill_(-1e-3)
    optimizer.update()
    # A first Adam step moves every parameter by the learning rate, whatever the size of its gradient.
    torch.testing.assert_close(optimizer.flat.detach() - first, torch.full_like(first, 1e-2), rtol=1e-3, atol=0.0)


def test_parameters_share_the_memory_of_the_flat_tensor():
    network = build("average", "sd_cfr", None, SHAPES[0])
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = FlatAdam(network, 1e-2, 1.0)
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
    with torch.no_grad():
        optimizer.flat.fill_(0.5)
    assert all(bool((p == 0.5).all()) for p in network.parameters())
    network.load_state_dict(build("average", "sd_cfr", None, SHAPES[0], seed=1).state_dict())
    assert torch.equal(optimizer.flat.detach(), nn.utils.parameters_to_vector(network.parameters()).detach())
    assert float((optimizer.flat.detach() - 0.5).abs().max()) > 0.01


def test_step_runs_the_closure_and_updates():
    network = build("value", "fc", 1, SHAPES[0])
    optimizer = FlatAdam(network, 1e-2, 1.0)
    before = optimizer.flat.detach().clone()

    def closure() -> float:
        assert optimizer.flat.grad is not None
        optimizer.flat.grad.fill_(1.0)
        return 2.5

    assert optimizer.step(closure) == 2.5
    assert float((optimizer.flat.detach() - before).max()) < 0


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
def test_fit_equals_a_plain_training_loop(kind, architecture, layers):
    steps, clip_norm = 10, 0.02
    plain = build(kind, architecture, layers, SHAPES[1])
    network = copy.deepcopy(plain)
    x, legal, _, _ = problem(SHAPES[1])
    draw = torch.Generator().manual_seed(2)
    batches = []
    for i in range(steps):
        # Every other minibatch lists its rows, as on games too large for grouping.
        rows = torch.randint(len(x), (5,), generator=draw) if i % 2 else torch.arange(len(x))
        weight = torch.rand(len(rows), 1, generator=draw) * 10.0 ** (i % 3 - 2)
        target = torch.randn(len(rows), legal.shape[1], generator=draw)
        batches.append(Minibatch(rows, weight, target, torch.zeros(())))
    reference = torch.optim.Adam(plain.parameters(), lr=1e-2)
    for batch in batches:
        reference.zero_grad()
        output = plain(x[batch.infosets], legal[batch.infosets])
        loss = ((output - batch.target).square() * batch.weight).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)
        reference.step()
    reported = fit(network, FlatAdam(network, 1e-2, clip_norm), batches, steps, x, legal)
    assert reported == pytest.approx(float(loss.detach()), rel=1e-3)
    for p, q in zip(plain.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=2e-4)


def test_fit_says_when_training_diverges():
    network = build("value", "fc", 1, SHAPES[1])
    x, legal, weight, target = problem(SHAPES[1])
    batch = Minibatch(None, weight, target * float("nan"), torch.zeros(()))
    with pytest.raises(FloatingPointError, match="not finite"):
        fit(network, FlatAdam(network, 1e-3, 1.0), [batch] * 3, 3, x, legal)


# -- outputs ---------------------------------------------------------------------------------------------------------


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


# -- features --------------------------------------------------------------------------------------------------------


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


def overlapping(width: int) -> Merge:
    """Branches that share a column, and leave the last one out."""
    branches = [nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Sequential(nn.Linear(3, 3), Normalise())]
    return Merge([slice(0, 4), slice(3, 6)], branches, 3, width)


@pytest.mark.parametrize("seed", range(12))
def test_hand_written_gradients_in_any_order_of_modules(seed):
    rng = np.random.default_rng(seed)
    width = 7
    make = [lambda: nn.Linear(width, width), nn.ReLU, Normalise, lambda: Residual(width), lambda: overlapping(width)]
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(5, width), *(make[i]() for i in rng.integers(0, 5, 5)), nn.Linear(width, 3))
    network = Network(body, MaskedSoftmax())
    optimizer = FlatAdam(network, 1e-3, 1.0)
    x, legal, weight, target = torch.randn(9, 5), torch.ones(9, 3, dtype=torch.bool), torch.rand(9, 1), torch.rand(9, 3)
    found: list[Tensor] = []
    for kind in (Autograd, HandDifferentiated):
        optimizer.reset()
        gradients = kind(network)
        gradients.prepare(x, legal)
        gradients.compute(weight, target)
        assert optimizer.flat.grad is not None
        found.append(optimizer.flat.grad.clone())
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 9])
def test_layers_without_bias_are_differentiated_by_hand(rows):
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Linear(5, 7, bias=False), nn.ReLU(), Residual(7), nn.Linear(7, 6, bias=False), Normalise(), nn.Linear(6, 4)
    )
    network = Network(body, MaskedLinear())
    inputs = problem((rows, 5, 7, 4))
    expected_output, expected = exact_gradients(network, *inputs)
    FlatAdam(network, 1e-3, 1.0)
    gradients = gradients_of(network)
    assert isinstance(gradients, HandDifferentiated)
    gradients.prepare(*inputs[:2])
    output = gradients.compute(*inputs[2:])
    torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
    assert len(expected) == 6, "three weights and one bias, and a weight and a bias of the skip layer"
    assert_same_gradients(network, expected)
