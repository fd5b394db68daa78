"""The network on Hold'em features, its gradients, and fits on rows of no table."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.config import NetworkConfig
from repro.games import Game, load
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import parameter_count, value_network
from repro.networks.optimizers import FlatAdam
from tests.helpers.holdem import drawn_infosets, game_of
from tests.helpers.networks import BUILDERS, exact_gradients


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


def test_embeddings_start_as_linear_layers_do():
    """Not with unit variance, as `nn.Embedding`'s: uniform within one over the root of the inputs."""
    network = value_network(NetworkConfig("deep_cfr", 64, None, 64), HoldemFeatures(game_of("fhp")).columns, 3)
    hand, flop, *_ = [m for m in network.body.modules() if isinstance(m, nn.Linear)]
    for layer in (hand, flop):
        assert layer.in_features == 52 + 13 + 4
        largest = layer.in_features**-0.5
        weight = layer.weight.detach()
        assert 0.99 * largest < float(weight.abs().max()) <= largest
        assert float(weight.std()) == pytest.approx(largest / 3**0.5, rel=0.05)


def problem(game: Game, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and legal mask of drawn infosets, weights (one of them zero) and targets, also at illegal actions."""
    x, legal = HoldemFeatures(game).rows(drawn_infosets(game, rows, seed)[0])
    draw = torch.Generator().manual_seed(seed)
    weight = torch.rand(rows, 1, generator=draw)
    weight[0] = 0.0
    return x, legal, weight, torch.randn(rows, 3, generator=draw)


def assert_same_gradients(optimizer: FlatAdam, expected: list[Tensor]) -> None:
    assert optimizer.flat.grad is not None
    flat = nn.utils.parameters_to_vector(expected)
    torch.testing.assert_close(optimizer.flat.grad.double(), flat, rtol=1e-4, atol=1e-5 * float(flat.abs().max()))


@pytest.mark.parametrize("card_width", [8, 24])
@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_gradients_of_rows_of_no_table(rule, kind, card_width):
    game = load("fhp", ranks=5, suits=2)
    torch.manual_seed(0)
    network = BUILDERS[kind](NetworkConfig("deep_cfr", 8, None, card_width), HoldemFeatures(game).columns, 3)
    optimizer = FlatAdam(network, 1e-3, 1.0)
    assert isinstance(gradients_of(network), HandDifferentiated)
    gradients = rule(network)
    for seed, rows in enumerate((40, 40, 7, 130)):
        inputs = problem(game, rows, seed)
        before = [t.clone() for t in inputs]
        expected_output, expected = exact_gradients(network, *inputs)
        gradients.rows(*inputs[:2])
        output = gradients.compute(*inputs[2:])
        torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
        assert_same_gradients(optimizer, expected)
        assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))


@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_rows_and_tables_may_take_turns(rule):
    game = load("fhp", ranks=5, suits=2)
    torch.manual_seed(0)
    network = value_network(NetworkConfig("deep_cfr", 8, None, 24), HoldemFeatures(game).columns, 3)
    optimizer = FlatAdam(network, 1e-3, 1.0)
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
            assert_same_gradients(optimizer, expected)
        own = problem(game, 30, 9 + turn)
        gradients.rows(*own[:2])
        gradients.compute(*own[2:])
        _, expected = exact_gradients(network, *own)
        assert_same_gradients(optimizer, expected)


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
