"""Memories: what they keep, what they forget, and the minibatches they give."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from repro.algorithms import memory as memory_module
from repro.algorithms.memory import Aggregated, Entries, Memory, Reservoir, Window
from repro.algorithms.minibatches import Minibatch
from repro.engine.sampling import InfosetSamples
from repro.networks.gradients import HandDifferentiated
from repro.networks.modules import MaskedLinear, fc
from repro.networks.optimizers import FlatAdam
from tests.helpers.draws import seeded

FIRST, COUNT, ACTIONS = 100, 6, 3
MANY = 100
"""Infosets, of which a small minibatch has only those that were drawn, where no more than `COUNT` are few."""


def numbered(start: int, stop: int) -> InfosetSamples:
    """Entries that can be told apart: their targets are their numbers."""
    number = torch.arange(start, stop)
    return InfosetSamples(FIRST + number % COUNT, number[:, None] + torch.tensor([0.0, 0.25, 0.5]))


def random_samples(n: int, seed: int) -> InfosetSamples:
    draw = seeded(seed)
    return InfosetSamples(FIRST + torch.randint(COUNT, (n,), generator=draw), torch.randn(n, ACTIONS, generator=draw))


def numbers_held(memory: Entries) -> list[int]:
    """The numbers of the entries in slot order, checked to be whole entries and not parts of several."""
    state = memory.state_dict()
    number = state["target"][0].long()
    assert torch.equal(state["target"], torch.stack([number + 0.0, number + 0.25, number + 0.5]))
    assert torch.equal(state["infoset"].long(), number % COUNT)
    return number.tolist()


def reservoir(capacity: int, count: int = COUNT) -> Reservoir:
    return Reservoir(capacity, FIRST, count, ACTIONS, "cpu")


def window(capacity: int, count: int = COUNT) -> Window:
    return Window(capacity, FIRST, count, ACTIONS, "cpu")


def chi_square_is_plausible(statistic: float, freedom: int) -> bool:
    """Within five standard deviations of what chance gives."""
    return statistic < freedom + 5 * math.sqrt(2 * freedom)


def loss_of(batch: Minibatch, outputs: Tensor) -> Tensor:
    """The loss that a minibatch stands for, where `outputs` `[infosets, actions]` are a network's."""
    rows = outputs if batch.infosets is None else outputs[batch.infosets]
    return (batch.weight * (rows - batch.target).square()).sum() + batch.constant


# -- whose infosets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("infosets", [[FIRST - 1, FIRST], [FIRST, FIRST + COUNT], [FIRST + (1 << 32)]])
@pytest.mark.parametrize(
    "made", [lambda: reservoir(50), lambda: window(50), lambda: Aggregated(FIRST, COUNT, ACTIONS, "cpu")]
)
def test_rows_of_the_other_player_are_refused(made, infosets):
    memory = made()
    memory.add(numbered(0, 4), 1, seeded(0))
    before = memory.state_dict()
    samples = InfosetSamples(torch.tensor(infosets), torch.zeros(len(infosets), ACTIONS))
    sentence = rf"^infosets {min(infosets)} to {max(infosets)} .* memory of a player with infosets 100 to 105\.$"
    with pytest.raises(ValueError, match=sentence):
        memory.add(samples, 2, seeded(0))
    # Nothing of the batch was stored.
    after = memory.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


# -- what a reservoir keeps ------------------------------------------------------------------------------------------


def test_reservoir_keeps_everything_in_order_until_it_is_full():
    memory = reservoir(50)
    for iteration, (start, stop) in enumerate([(0, 7), (7, 7), (7, 30), (30, 50)], start=1):
        memory.add(numbered(start, stop), iteration, seeded(iteration))
        assert numbers_held(memory) == list(range(stop))
        assert (memory.size, memory.seen) == (stop, stop)
    assert memory.state_dict()["iteration"].tolist() == [1] * 7 + [3] * 23 + [4] * 20


@pytest.mark.parametrize("sizes", [(3, 4, 100, 1, 0, 50), (25,), (10, 10), (9, 2), (1,) * 30])
def test_reservoir_never_exceeds_its_capacity(sizes):
    memory, added = reservoir(10), 0
    for iteration, size in enumerate(sizes, start=1):
        memory.add(numbered(added, added + size), iteration, seeded(iteration))
        added += size
        held = numbers_held(memory)
        assert len(held) == memory.size == min(added, 10)
        assert memory.seen == added
        # No entry is held twice, and none that was never added.
        assert len(set(held)) == len(held)
        assert set(held) <= set(range(added))


def test_entries_keep_the_iteration_in_which_they_came():
    memory = reservoir(20)
    for iteration in range(1, 9):
        memory.add(numbered(10 * iteration, 10 * iteration + 10), iteration, seeded(iteration))
    held = torch.tensor(numbers_held(memory))
    assert torch.equal(memory.state_dict()["iteration"].long(), held // 10)
    assert len(held.div(10, rounding_mode="floor").unique()) > 2


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(60,), (7, 13, 1, 39), (10, 25, 25)])
def test_every_entry_is_kept_with_the_same_probability(sizes):
    capacity, total, seeds = 10, sum(sizes), 1500
    kept = torch.zeros(total)
    for seed in range(seeds):
        memory, added, draw = reservoir(capacity), 0, seeded(seed)
        for iteration, size in enumerate(sizes, start=1):
            memory.add(numbered(added, added + size), iteration, draw)
            added += size
        kept[memory.state_dict()["target"][0].long()] += 1
    share = capacity / total
    variance = seeds * share * (1 - share) * total / (total - 1)
    assert chi_square_is_plausible(float(((kept - seeds * share) ** 2).sum() / variance), total - 1)


def sequential_algorithm_r(capacity: int, total: int) -> dict[tuple[int, ...], Fraction]:
    """Exact distribution of the slots when entries come one at a time [Vitter 1985]."""
    outcomes: dict[tuple[int, ...], Fraction] = {tuple(range(capacity)): Fraction(1)}
    for entry in range(capacity, total):
        after: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for (slots, probability), slot in itertools.product(outcomes.items(), range(entry + 1)):
            changed = (*slots[:slot], entry, *slots[slot + 1 :]) if slot < capacity else slots
            after[changed] += probability / (entry + 1)
        outcomes = after
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(6,), (2, 4), (3, 3)])
def test_a_batch_is_distributed_as_entries_that_come_one_at_a_time(sizes):
    # Several entries of a batch may draw the same slot; keeping the first instead of the last would fail here.
    expected, seeds = sequential_algorithm_r(2, 6), 4000
    assert sum(expected.values()) == 1
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(seeds):
        memory, added, draw = reservoir(2), 0, seeded(seed)
        for size in sizes:
            memory.add(numbered(added, added + size), 1, draw)
            added += size
        seen[tuple(memory.state_dict()["target"][0].int().tolist())] += 1
    assert set(seen) <= set(expected)
    statistic = sum(float((seen[o] - seeds * p) ** 2 / (seeds * p)) for o, p in expected.items())
    assert chi_square_is_plausible(statistic, len(expected) - 1)


# -- what a window keeps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 4, 100, 1, 0, 50), (25,), (10, 10), (9, 2), (1,) * 30, (4, 27, 10, 3)])
def test_a_window_holds_the_last_entries(sizes):
    memory, plain, added = window(10), deque[int](maxlen=10), 0
    for iteration, size in enumerate(sizes, start=1):
        memory.add(numbered(added, added + size), iteration, seeded(iteration))
        plain.extend(range(added, added + size))
        added += size
        assert sorted(numbers_held(memory)) == list(plain)
        assert (memory.size, memory.seen, memory.stands_for) == (len(plain), added, len(plain))


def test_a_windows_entries_keep_their_iteration_and_the_rest_is_forgotten():
    memory = window(25)
    for iteration in range(1, 9):
        memory.add(numbered(10 * iteration, 10 * iteration + 10), iteration, seeded(iteration))
    held = torch.tensor(numbers_held(memory))
    assert torch.equal(memory.state_dict()["iteration"].long(), held // 10)
    assert sorted(held.tolist()) == list(range(65, 90))
    # Of minibatches that draw everything many times, the mean target is that of what is held.
    (batch,) = minibatches(memory, 1, 20_000, 8)
    assert float((batch.weight * batch.target[:, :1]).sum() / batch.weight.sum()) == pytest.approx(
        float((held // 10 * held).sum() / (held // 10).sum()), rel=2e-3
    )


@pytest.mark.parametrize("count", [COUNT, MANY])
def test_until_it_is_full_a_window_is_a_reservoir(count, monkeypatch):
    monkeypatch.setattr(memory_module, "_FEW", COUNT)
    one, other = window(100, count), reservoir(100, count)
    for memory in (one, other):
        for iteration in range(1, 5):
            memory.add(random_samples(25, iteration), iteration, seeded(iteration))
    assert_same_state(one, other)
    for a, b in zip(minibatches(one, 3, 16, 4), minibatches(other, 3, 16, 4), strict=True):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.target, b.target)
    for memory in (one, other):
        memory.add(random_samples(25, 5), 5, seeded(5))
    assert not torch.equal(one.state_dict()["iteration"], other.state_dict()["iteration"])


# -- minibatches -----------------------------------------------------------------------------------------------------


def minibatches(memory: Memory, steps: int, batch_size: int, iteration: int, scale: float = 1.0) -> list[Minibatch]:
    return list(memory.minibatches(steps, batch_size, iteration, scale, seeded(5)))


def filled(count: int, capacity: int = 60, kind: Callable[[int, int], Entries] = reservoir) -> Entries:
    """The same entries for every `count`, which only decides whether minibatches are grouped by infoset."""
    memory = kind(capacity, count)
    for iteration in range(1, 5):
        memory.add(random_samples(23, iteration), iteration, seeded(iteration))
    return memory


@pytest.mark.parametrize("count", [COUNT, MANY], ids=["all infosets", "those drawn"])
@pytest.mark.parametrize("rows_at_once", [None, 40, 1])
def test_grouping_rows_changes_neither_loss_nor_gradient(count, rows_at_once, monkeypatch):
    monkeypatch.setattr(memory_module, "_FEW", COUNT)
    if rows_at_once is not None:
        # Draws are made for several steps at once; a few steps per draw puts a border between them.
        monkeypatch.setattr(memory_module, "_ROWS_AT_ONCE", rows_at_once)
    grouped = minibatches(filled(count), 5, 16, 4)
    single = minibatches(filled(1000), 5, 16, 4)
    assert len(grouped) == len(single) == 5
    draw = seeded(0)
    features, legal = torch.randn(COUNT, 4, generator=draw), torch.rand(COUNT, ACTIONS, generator=draw) < 0.7
    legal[:, 0] = True
    torch.manual_seed(0)
    network = fc(4, 8, ACTIONS, 1, MaskedLinear())
    optimizer = FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    assert optimizer.flat.grad is not None
    for together, apart in zip(grouped, single, strict=True):
        assert (together.infosets is None) == (count == COUNT)
        assert apart.infosets is not None
        assert len(apart.infosets) == len(apart.weight) == len(apart.target) == 16
        gradients.prepare(features, legal)
        if together.infosets is not None:
            assert together.infosets.tolist() == sorted(set(apart.infosets.tolist()))
            gradients.select(together.infosets)
        gradients.compute(together.weight * 2, together.target)
        outputs = network(features, legal).detach()
        gradient = optimizer.flat.grad.clone()
        gradients.prepare(features[apart.infosets], legal[apart.infosets])
        gradients.compute(apart.weight * 2, apart.target)
        torch.testing.assert_close(gradient, optimizer.flat.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(loss_of(together, outputs), loss_of(apart, outputs), rtol=1e-5, atol=1e-6)
    # The minibatches differ from each other, or the test would compare one with itself.
    assert len({float(batch.constant) for batch in grouped}) == 5


def test_an_infoset_that_was_not_drawn_has_no_weight():
    memory = reservoir(10)
    memory.add(InfosetSamples(torch.full((4,), FIRST + 2), torch.ones(4, ACTIONS)), 1, seeded(0))
    (batch,) = minibatches(memory, 1, 12, 1)
    assert batch.weight.flatten().nonzero().tolist() == [[2]]
    assert bool(torch.isfinite(batch.target).all())


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("batch_size", [4, 64])
@pytest.mark.parametrize("count", [COUNT, MANY])
def test_entries_count_with_their_iteration(count, batch_size, scale, monkeypatch):
    monkeypatch.setattr(memory_module, "_FEW", COUNT)
    # t/T and 2t/T: entries of iteration t sit at infoset t, and training happens in iteration T = 5.
    memory, last = reservoir(40, count), 5
    for t in range(1, last + 1):
        memory.add(InfosetSamples(torch.full((8,), FIRST + t), torch.zeros(8, ACTIONS)), t, seeded(t))
    mean = batch_size * ACTIONS
    seen = set()
    for batch in minibatches(memory, 20, batch_size, last, scale):
        if batch.infosets is None:
            rows = batch.weight.flatten() * mean
            assert len(rows) == COUNT
            times = rows[1:] * last / (scale * torch.arange(1, last + 1))
            # Each infoset's total weight is t/T times how often it was drawn.
            torch.testing.assert_close(times, times.round(), rtol=1e-5, atol=1e-5)
            assert float(times.sum()) == pytest.approx(batch_size, rel=1e-5)
            assert float(rows[0]) == 0.0
        else:
            times = batch.weight[:, 0] * mean * last / (scale * batch.infosets)
            torch.testing.assert_close(times, times.round(), rtol=1e-5, atol=1e-5)
            assert float(times.sum()) == pytest.approx(batch_size, rel=1e-5)
            seen |= set(batch.infosets.tolist())
    assert seen == (set(range(1, last + 1)) if count == MANY else set())


def test_minibatches_draw_uniformly_from_what_is_held():
    memory = reservoir(1000, count=1000)
    memory.add(numbered(0, 50), 1, seeded(0))
    counts = torch.zeros(50)
    steps, batch_size = 40, 100
    for batch in minibatches(memory, steps, batch_size, 1):
        number = batch.target[:, 0].long()
        assert batch.infosets is not None
        assert torch.equal(batch.infosets, number % COUNT)
        counts += torch.bincount(number, minlength=50)
    expected = steps * batch_size / 50
    assert chi_square_is_plausible(float(((counts - expected) ** 2).sum() / expected), 49)


@pytest.mark.parametrize("count", [COUNT, MANY, 1000], ids=["all infosets", "those drawn", "every row"])
def test_entries_drawn_by_weight_come_as_often_as_they_count(count, monkeypatch):
    monkeypatch.setattr(memory_module, "_FEW", COUNT)
    # Entries of iteration t sit at infoset t, the later ones more often.
    memory, last, steps, batch_size, scale = reservoir(400, count), 5, 40, 100, 2.0
    memory.by_weight = True
    for t in range(1, last + 1):
        memory.add(InfosetSamples(torch.full((4 * t,), FIRST + t), torch.zeros(4 * t, ACTIONS)), t, seeded(t))
    share = torch.tensor([4.0 * t * t for t in range(last + 1)])
    share /= share.sum()
    # In the mean over entries, t/T twice.
    entries = torch.arange(1, last + 1).repeat_interleave(4 * torch.arange(1, last + 1))
    each = scale * float(entries.double().mean()) / last / (batch_size * ACTIONS)
    came = torch.zeros(COUNT)
    for batch in minibatches(memory, steps, batch_size, last, scale):
        at = torch.arange(COUNT) if batch.infosets is None else batch.infosets
        came.index_add_(0, at, batch.weight[:, 0] / each)
    torch.testing.assert_close(came, came.round(), rtol=1e-4, atol=1e-3)
    assert float(came.sum()) == pytest.approx(steps * batch_size, rel=1e-5)
    expected = steps * batch_size * share[1:]
    assert float(came[0]) == 0
    assert chi_square_is_plausible(float(((came[1 : last + 1] - expected) ** 2 / expected).sum()), last - 1)


def test_entries_drawn_by_weight_give_the_same_loss_in_the_mean_and_less_spread():
    memory, outputs = filled(1000, 92), torch.randn(COUNT, ACTIONS, generator=seeded(3))

    def losses(by_weight: bool) -> Tensor:
        memory.by_weight = by_weight
        return torch.stack([loss_of(batch, outputs) for batch in minibatches(memory, 4000, 16, 4)]).double()

    uniformly, by_weight = losses(by_weight=False), losses(by_weight=True)
    error = float((uniformly.var() / 4000 + by_weight.var() / 4000).sqrt())
    assert abs(float(uniformly.mean() - by_weight.mean())) < 4 * error
    assert error < 0.02 * float(uniformly.mean())
    assert float(by_weight.var()) < float(uniformly.var())


def test_minibatches_depend_on_the_generator_alone():
    memory = filled(COUNT)
    once, again = minibatches(memory, 3, 16, 4), minibatches(memory, 3, 16, 4)
    other = list(memory.minibatches(3, 16, 4, 1.0, seeded(6)))
    for a, b in zip(once, again, strict=True):
        assert torch.equal(a.target, b.target)
    assert not torch.equal(once[0].target, other[0].target)


# -- aggregated ------------------------------------------------------------------------------------------------------


def aggregated_with_entries() -> tuple[Aggregated, list[tuple[int, InfosetSamples]]]:
    """An aggregated memory in which infoset 5 never occurs, and what was added to it."""
    memory = Aggregated(FIRST, COUNT, ACTIONS, "cpu")
    added = []
    for iteration in range(1, 6):
        samples = random_samples(4 * iteration, iteration)
        samples = InfosetSamples(samples.infosets.clamp(max=FIRST + 4), 10 * samples.targets)
        memory.add(samples, iteration, seeded(0))
        added.append((iteration, samples))
    return memory, added


def direct_loss(added: list[tuple[int, InfosetSamples]], outputs: Tensor, iteration: int, scale: float) -> float:
    """Mean over entries and actions of `scale * t / T * |f(I) - target|^2`, one entry at a time."""
    total, entries = 0.0, 0
    for t, samples in added:
        for infoset, target in zip(samples.infosets.tolist(), samples.targets.double(), strict=True):
            total += scale * t / iteration * float((outputs[infoset - FIRST] - target).square().mean())
            entries += 1
    return total / entries


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_aggregated_loss_is_the_mean_over_everything_added(scale):
    memory, added = aggregated_with_entries()
    assert memory.size == sum(len(samples.infosets) for _, samples in added)
    batches = minibatches(memory, 3, 16, 7, scale)
    assert len(batches) == 3
    for seed in range(3):
        outputs = 10 * torch.randn(COUNT, ACTIONS, generator=seeded(seed), dtype=torch.float64)
        expected = direct_loss(added, outputs, 7, scale)
        for batch in batches:
            assert float(loss_of(batch, outputs)) == pytest.approx(expected, rel=1e-5)


def test_aggregated_targets_minimise_the_loss():
    memory, added = aggregated_with_entries()
    (batch,) = minibatches(memory, 1, 16, 5)
    assert batch.infosets is None
    assert batch.weight.shape == (COUNT, 1)
    assert float(batch.weight[5]) == 0.0
    assert bool(torch.isfinite(batch.target).all())
    best = direct_loss(added, batch.target.double(), 5, 1.0)
    # At the weighted means nothing is left but the constant, and any other outputs are worse.
    assert best == pytest.approx(float(batch.constant), rel=1e-5)
    for infoset, action in itertools.product(range(5), range(ACTIONS)):
        for change in (-0.1, 0.1):
            other = batch.target.double()
            other[infoset, action] += change
            assert direct_loss(added, other, 5, 1.0) > best


def test_aggregated_is_what_a_large_reservoirs_minibatches_are_on_average():
    memory, added = aggregated_with_entries()
    large = reservoir(1000)
    for iteration, samples in added:
        large.add(samples, iteration, seeded(0))
    outputs = torch.randn(COUNT, ACTIONS, generator=seeded(9)) * 10
    (exact,) = minibatches(memory, 1, 1, 5)
    losses = torch.stack([loss_of(batch, outputs) for batch in minibatches(large, 400, 64, 5)])
    error = float(losses.std() / math.sqrt(len(losses)))
    assert abs(float(losses.mean() - loss_of(exact, outputs))) < 4 * error
    assert error < 0.01 * float(losses.mean())


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [reservoir, window])
@pytest.mark.parametrize("capacity", [200, 60])
def test_entries_continue_from_their_state(kind, capacity):
    original, restored = filled(COUNT, capacity, kind), kind(capacity)
    # What the memory held before must not show through.
    restored.add(random_samples(30, 9), 9, seeded(9))
    restored.load_state_dict(original.state_dict())
    assert (restored.size, restored.seen) == (original.size, original.seen) == (min(capacity, 92), 92)
    for memory in (original, restored):
        memory.add(random_samples(40, 7), 7, seeded(7))
    assert_same_state(original, restored)
    for a, b in zip(minibatches(original, 3, 16, 7), minibatches(restored, 3, 16, 7), strict=True):
        assert torch.equal(a.target, b.target)
        assert torch.equal(a.weight, b.weight)


def test_aggregated_continues_from_its_state():
    original, _ = aggregated_with_entries()
    restored = Aggregated(FIRST, COUNT, ACTIONS, "cpu")
    restored.load_state_dict(original.state_dict())
    assert restored.size == original.size
    for memory in (original, restored):
        memory.add(random_samples(40, 7), 7, seeded(7))
    assert_same_state(original, restored)


@pytest.mark.parametrize(
    "made", [lambda: filled(COUNT), lambda: filled(COUNT, kind=window), lambda: aggregated_with_entries()[0]]
)
def test_a_state_is_a_copy(made):
    memory: Memory = made()
    state = memory.state_dict()
    before = {key: value.clone() for key, value in state.items()}
    memory.add(random_samples(200, 8), 8, seeded(8))
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert any(not torch.equal(value, before[key]) for key, value in memory.state_dict().items())


def assert_same_state(one: Memory, other: Memory) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("infosets", [10**6, 1 << 33])
def test_forty_million_entries_of_both_memories_fit_two_gigabytes(infosets):
    memory = Reservoir(1000, 0, infosets, 3, "cpu")
    tensors = [value for value in vars(memory).values() if isinstance(value, torch.Tensor)]
    entry = sum(t.numel() * t.element_size() for t in tensors) / 1000
    assert 2 * 40_000_000 * entry <= 2e9
    numbers = torch.tensor([0, infosets - 1, infosets // 2])
    memory.add(InfosetSamples(numbers, torch.zeros(3, 3)), 1, torch.Generator())
    (batch,) = memory.minibatches(1, 64, 1, 1.0, torch.Generator().manual_seed(0))
    assert batch.infosets is not None
    assert set(batch.infosets.tolist()) == set(numbers.tolist())
