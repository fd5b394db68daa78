"""Subgames of the full deck: solving them, beside a plain matrix of all pairs of hands and beside what memory allows;
and predicting their values, by a small DEVN beside a large DCVN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from repro.bench.measure import Effort, Row, interleaved, per_second, seconds
from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.common.seeding import initialisation
from repro.config import NetworkConfig
from repro.subgames.data import SubgameData
from repro.subgames.dataset import MOST_ITERATIONS
from repro.subgames.encoding import CFV, EV, counterfactual, inverse
from repro.subgames.kernels import UPDATE, Rule
from repro.subgames.networks import ValueModule, ValueNetworkConfig
from repro.subgames.plain import PlainSolver
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig, SubgameSolver, rule, solve_subgame
from repro.subgames.subgames import Deck, Subgames, matchups

_TABLE_BYTES = 24
"""Per action and hand, an iteration reads regrets twice for regret matching, and reads and writes regrets and sums
once."""

_COPIED = 1 << 26

_TOLERANCES = (0.005, 0.001, 0.0002)
"""Exploitability as a fraction of the pot: a coarse one, that of DEVN's figures at scale `laptop`, and at `paper`."""

_RESETS = [4**n for n in range(1, 9)]

_POT = 1000.0
"""Chips; a pot of middling size, and so a betting tree of middling size."""

_LEAST_POT = 2000.0
"""Of the subgames that DEVN's figures have."""

_FEW, _MANY = 2, 7
"""Hidden layers of the DEVN and of the DCVN that it is said to be as good as [DEVN, Sec. 7]."""

_NETWORKS = ((1000, 500), (1000, 1024), (2000, 1024), (250, 256))
"""Buckets and neurons per layer: the paper's settings I to III, and figure 11's at scale `laptop`."""

_DRAWN, _TIMES = 32, 16
"""Turn subgames that are drawn, and how often each is in a batch."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    turns = drawn_turns()
    return [
        river_subgame_iteration(effort), river_subgame_resets(effort), turn_subgame_traffic(effort),
        *(devn_inference(effort, turns, buckets, width) for buckets, width in _NETWORKS),
    ]  # fmt: skip


def river_subgame_iteration(effort: Effort) -> Row:
    """An iteration on a river subgame beside one that multiplies by a matrix of 1,081 x 1,081 hands.

    The note has what `repro.subgames` is for: random subgames solved to 0.5% of the pot in an hour, drawing included.
    """
    subgame = replace(random_subgame(0, 1, 5, Deck()), pot=_POT)
    ours, plain = SubgameSolver(subgame, SolverConfig()), PlainSolver(subgame, SolverConfig())
    for solver in (ours, plain):
        solver.iterate()
    our_rate, peer_rate = interleaved(
        lambda: per_second(ours.iterate, effort.tabular_seconds),
        lambda: per_second(plain.iterate, effort.tabular_seconds), effort.repetitions,
    )  # fmt: skip
    subgames = 10 * effort.turns
    elapsed = seconds(
        lambda: [solve_subgame(random_subgame(0, n, 5, Deck()), SolverConfig(), 0.005) for n in range(subgames)]
    )
    hourly = 3600 * subgames / elapsed
    note = (
        f"peer: matrices; {hourly:,.0f} random river subgames an hour to 0.5% of the pot, {subgames} solved on one "
        "thread"
    )
    return Row("river_subgame_iteration", our_rate, peer_rate, "iterations/s", our_rate / peer_rate, note)


class _BeginningAnew(SubgameSolver):
    """Of a river, with the average, and its weights, beginning anew after 4, 16, 64, ... iterations."""

    _last = 0

    def iterate(self) -> None:
        if self.iterations in _RESETS:
            self._last = self.iterations
            self._on_river[1][:] = 0
        super().iterate()

    def _sweep(self, player: int, mode: int, how: Rule) -> Array:
        if mode == UPDATE:
            how = how._replace(weight=rule(self.variant, self.iterations - self._last).weight)
        return super()._sweep(player, mode, how)


def river_subgame_resets(effort: Effort) -> Row:
    """River subgames solved in as many iterations, beside what is solved if the average begins anew now and then.

    At powers of four, as a public solver (postflop-solver) does it, whose exponents are others. No time is measured.
    """
    subgames = [random_subgame(0, n, 5, Deck()) for n in range(max(2, effort.turns // 2))]
    ours, peer = (
        [_iterations_to(kind(each, SolverConfig())) for each in subgames] for kind in (SubgameSolver, _BeginningAnew)
    )
    if not all(len(taken) == len(_TOLERANCES) for taken in (*ours, *peer)):
        raise ReproError(f"a river subgame is not solved to {_TOLERANCES[-1]:.2%} after {MOST_ITERATIONS} iterations.")
    means = [np.mean(taken, 0) for taken in (ours, peer)]
    told = "; ".join(
        f"{tolerance:.2%}: {own:.0f} for {other:.0f}" for tolerance, own, other in zip(_TOLERANCES, *means, strict=True)
    )
    our_rate, peer_rate = (1000 / float(mean[1]) for mean in means)
    note = (
        f"peer: the average begins anew after 4, 16, 64, ... iterations; iterations to {told}, {len(subgames)} rivers"
    )
    return Row("river_subgame_resets", our_rate, peer_rate, "rivers/1000 iterations", our_rate / peer_rate, note)


def _iterations_to(solver: SubgameSolver) -> list[int]:
    """Iterations to each of `_TOLERANCES`, or up to four more."""
    taken = list[int]()
    while len(taken) < len(_TOLERANCES) and solver.iterations < MOST_ITERATIONS:
        solver.iterate()
        if solver.iterations % 5 == 0:
            exploitability = solver.exploitability()
            taken += [solver.iterations for tolerance in _TOLERANCES[len(taken) :] if exploitability <= tolerance]
    return taken


def turn_subgame_traffic(effort: Effort) -> Row:
    """Bytes of its tables that an iteration on a turn subgame must move, a second, beside a plain copy's.

    The ratio is the share of what memory would allow if nothing else took time.
    """
    solver = SubgameSolver(replace(random_subgame(0, 3, 4, Deck()), pot=_POT), SolverConfig())
    solver.iterate()
    source, target = np.zeros(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    our_rate, peer_rate = interleaved(
        lambda: _TABLE_BYTES * solver.entries * per_second(solver.iterate, effort.tabular_seconds) / 1e9,
        lambda: 2 * _COPIED * per_second(lambda: np.copyto(target, source), effort.tabular_seconds) / 1e9,
        effort.repetitions,
    )
    drawn = [random_subgame(0, n, 4, Deck(), _LEAST_POT) for n in range(effort.turns)]
    hourly = 3600 * effort.turns / seconds(lambda: [solve_subgame(subgame, SolverConfig(), 0.005) for subgame in drawn])
    note = (
        f"peer: np.copyto; {solver.entries:,} pairs of action and hand, {_TABLE_BYTES} bytes each an iteration; "
        f"{hourly:,.0f} random turn subgames with pots of {_LEAST_POT:,.0f} and more an hour to 0.5% of the pot, "
        f"{effort.turns} solved on one thread"
    )
    return Row("turn_subgame_traffic", our_rate, peer_rate, "GB/s", our_rate / peer_rate, note)


# -- values of networks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turns:
    """A batch of turn subgames, as whoever asks for their values has them.

    Attributes:
        boards: `[n, 4]`.
        pot: `[n]` chips.
        ranges: `[n, 2, hands]` float32 that sum to 1.
    """

    boards: Array
    pot: Array
    ranges: Array


def drawn_turns(drawn: int = _DRAWN, times: int = _TIMES) -> Turns:
    """Random turns of the full deck, each so many times."""
    subgames = [random_subgame(0, n, 4, Deck(), _LEAST_POT) for n in range(drawn)] * times
    return Turns(
        np.array([s.board for s in subgames], np.int8), np.array([s.pot for s in subgames]),
        np.array([s.ranges for s in subgames], np.float32),
    )  # fmt: skip


Matchups = Callable[[Turns], Array]
"""`[n, 2, hands]` matchups of a batch."""


def summed_matchups(turns: Turns) -> Array:
    """As everywhere in this suite, in O(hands)."""
    return matchups(Deck(), turns.boards, turns.ranges).astype(np.float32)


def multiplied_matchups(turns: Turns) -> Matchups:
    """As the paper has them: a range of all 1,326 hands times the matrix of which can be held together [DEVN, Sec. 5].

    The matrix, and the numbers of the boards' hands in it, are known beforehand.
    """
    deck = Deck()
    cards, number = deck.hands(()), deck.remaining_hands(turns.boards)[:, None].repeat(2, 1)
    apart = (cards[:, None, :, None] != cards[None, :, None, :]).all((2, 3)).astype(np.float32)
    opponents = np.zeros((len(turns.boards), 2, len(cards)), np.float32)

    def multiplied(given: Turns) -> Array:
        np.put_along_axis(opponents, number, given.ranges[:, ::-1], 2)
        every = (opponents.reshape(-1, len(cards)) @ apart).reshape(opponents.shape)
        return np.take_along_axis(every, number, 2)

    return multiplied


def predictor(
    predicts: str, layers: int, buckets: int, width: int, turns: Turns, bucket: Tensor,
    matchups_of: Matchups = summed_matchups,
) -> tuple[ValueModule, Callable[[], Tensor]]:  # fmt: skip
    """A network, and what takes its batch from ranges to counterfactual values, `[n, 2, hands]` in pots.

    Args:
        predicts: `CFV` for DCVN, which ends in its zero-sum layer; `EV` for DEVN, whose values are multiplied by
            matchups, which are computed from the ranges.
        bucket: `[n, hands]` int64 of each hand; of a board it is known beforehand.
        matchups_of: how that is done.
    """
    subgames = Subgames("turn_subgames", Deck(), _LEAST_POT)
    algorithm = ValueNetworkConfig(
        name="bench", iterations=1, snapshot_every=1, subgames=2, batch_size=1, buckets=buckets, predicts=predicts
    )
    data = SubgameData(subgames, algorithm, predicts, 0, Path())
    # Both ways to the matchups are measured of the same network.
    with initialisation(0, "bench network"):
        network = algorithm.module_of(data, NetworkConfig("prelu", width, layers)).eval()
    ranges = torch.from_numpy(turns.ranges)

    @torch.no_grad()
    def predicted() -> Tensor:
        values = inverse(network(data.inputs_of(turns.boards, turns.pot, ranges, bucket)), bucket)
        if predicts == CFV:
            return values
        return counterfactual(values, torch.from_numpy(matchups_of(turns)), predicts)

    return network, predicted


def devn_inference(effort: Effort, turns: Turns, buckets: int, width: int) -> Row:
    """Counterfactual values of a batch of turns from a DEVN with two hidden layers, beside a DCVN with seven of as many
    neurons and buckets: ranges to buckets, the network, values back to hands, for DEVN matchups and the product with
    them, for DCVN its zero-sum layer. Hands are in random buckets; which ones is no part of the time of either.

    The note has the ratio with matchups as the paper computes them, too.
    """
    count, hands = len(turns.pot), turns.ranges.shape[2]
    bucket = torch.randint(buckets, (count, hands), generator=torch.Generator().manual_seed(0))
    small, ours = predictor(EV, _FEW, buckets, width, turns, bucket)
    _, by_matrix = predictor(EV, _FEW, buckets, width, turns, bucket, multiplied_matchups(turns))
    large, peer = predictor(CFV, _MANY, buckets, width, turns, bucket)
    if not torch.allclose(ours(), by_matrix(), atol=1e-5):
        raise AssertionError("the two ways to the matchups differ")
    peer()

    def measured(predicted: Callable[[], Tensor]) -> tuple[float, float]:
        return interleaved(
            lambda: count * per_second(predicted, effort.tabular_seconds),
            lambda: count * per_second(peer, effort.tabular_seconds), effort.repetitions,
        )  # fmt: skip

    (our_rate, peer_rate), (slower, beside) = measured(ours), measured(by_matrix)
    parameters = [sum(part.numel() for part in network.parameters()) for network in (small, large)]
    note = (
        f"DEVN, {_FEW} layers, {parameters[0]:,} parameters; peer: DCVN, {_MANY}, {parameters[1]:,}, "
        f"{parameters[1] / parameters[0]:.2f} times as many; batches of {count} turns; {buckets:,} buckets, {width:,} "
        f"neurons; with matchups by the paper's matrix the ratio is {slower / beside:.2f}"
    )
    return Row(f"devn_inference_{buckets}_{width}", our_rate, peer_rate, "subgames/s", our_rate / peer_rate, note)
