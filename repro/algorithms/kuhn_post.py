"""The Kuhn tutorial's "Deep CFR", as its text and its published code print it, and with its two errors corrected.

Source: the post "Deep CFR: When Regret Meets Neural Networks" and the repository it links to (mahdiiii04/DeepCFR). Each
iteration deals once, walks the whole betting tree of that deal with the current strategies, takes one Adam step per
decision node on each of two networks (regrets; strategy), and forgets the samples. What it is not, compared with Deep
CFR [Brown et al. 2018]: there are no memories, so the regret network follows recent regrets instead of cumulative
ones, regrets are not weighted by the opponent's reach, and the strategy network imitates recent strategies.

Two errors of the printed code are options here, so that their effect can be measured:

- `payoffs=printed`: after a fold the *folder* wins the pot (`payoff()` reads `player` after `next_state()` has passed
  the turn on). `kuhn`: the other player does.
- `perspective=player_0`: `traverse()` returns player 0's chips at every node and `regrets = utils - node_util` is taken
  as it is for both, so player 1 learns to lose. `own`: player 1's sign is turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from repro.algorithms.base import Algorithm, epochs_of, largest_divisor
from repro.common.errors import ReproError
from repro.common.seeding import initialisation
from repro.config.fields import above, at_least, one_of
from repro.config.schema import AlgorithmConfig, Config, Leaves, register_algorithm
from repro.games.betting import SHOWDOWN
from repro.games.game import Game
from repro.networks.gradients import gradients_of
from repro.networks.modules import MaskedLinear, MaskedSoftmax, fc
from repro.networks.optimizers import FlatAdam
from repro.networks.sizes import size_of
from repro.policies.base import TabularPolicy
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import Snapshot

# The number by which `encoding.py` tells a betting history apart, by our actions (fold, call, raise) = (0, 1, 2).
_HISTORY_NUMBER = {(): 0.0, (1,): 1.0, (2,): 2.0, (1, 2): 4.0}
_ACTIONS = 2
_LAYERS = 2

_MOST_PER_STEP = 100
"""Iterations in one epoch of Lightning's."""


class StrategyNetwork(Readout):
    """Both seats play the strategy network's probabilities."""

    def seats(self, snapshot: Snapshot) -> Sequence[Seat]:
        network = strategy_network(self.config.algorithm.width).to(self.game.device)
        network.load_state_dict(snapshot.state["strategy"])
        policy = self.policy(self.game, network)
        return policy, policy

    @classmethod
    def policy(cls, game: Game, network: nn.Module) -> TabularPolicy:
        """What is played with a strategy network."""
        numbers = history_numbers(game)
        rows = [[h, numbers[n]] for h, n in zip(game.infoset_hand.tolist(), game.infoset_node.tolist(), strict=True)]
        legal = torch.ones(len(rows), _ACTIONS, dtype=torch.bool, device=game.device)
        with torch.no_grad():
            output = cls.probabilities(network(torch.tensor(rows, device=game.device), legal).double())
        # The k-th legal action is the network's k-th output.
        return TabularPolicy(
            torch.zeros_like(game.uniform).masked_scatter(game.legal, output / output.sum(1, keepdim=True))
        )

    @staticmethod
    def probabilities(output: Tensor) -> Tensor:
        """`[infosets, 2]` the network's output -> what is played."""
        return output


class Greedy(StrategyNetwork):
    """Always the strategy network's most probable action, which is what the post's games are played with."""

    @staticmethod
    def probabilities(output: Tensor) -> Tensor:
        return nn.functional.one_hot(output.argmax(1), _ACTIONS).double()


def strategy_network(width: int) -> nn.Module:
    """One with fresh weights."""
    return fc(2, width, _ACTIONS, _LAYERS, MaskedSoftmax())


def history_numbers(game: Game) -> dict[int, float]:
    """By decision node, the number that networks see of the betting so far."""
    tree = game.tree
    return {n: _HISTORY_NUMBER[tree.histories[n][0]] for n in range(tree.nodes) if int(tree.player[n]) >= 0}


@dataclass
class KuhnPostConfig(AlgorithmConfig):
    """The Kuhn tutorial's algorithm; see above for its two errors."""

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {"policy": StrategyNetwork, "greedy": Greedy}
    USES_NETWORK = False

    # After a fold, printed: the folder wins; kuhn: the other player.
    payoffs: str = one_of("printed", "kuhn")
    # Whose chips regrets count. player_0: always player 0's, as printed; own: the acting player's.
    perspective: str = one_of("player_0", "own")
    # Units of the two hidden layers of both networks, and Adam's learning rate.
    width: int = at_least(1, 64)
    learning_rate: float = above(0, 1e-3)

    def problems(self, config: Config, game: Game) -> Iterator[str]:
        if game.name != "kuhn":
            yield f"game is {game.name!r}; the algorithm {self.name} plays kuhn only."

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        # Two networks, each with a layer between its two hidden ones, and Adam's moments.
        yield "algorithm.width", 2 * 4 * 4.0 * self.width**2

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        with torch.device("meta"):
            network = size_of(fc(2, self.width, _ACTIONS, _LAYERS, MaskedSoftmax()))
        # A checkpoint has both networks, and Adam's moments.
        return Leaves(
            snapshot=network.bytes,
            row=0.0,
            checkpoint=2 * 3 * network.bytes,
            tensors=2 * (network.tensors + 3),
            epochs=epochs_of(self.iterations, largest_divisor(self.snapshot_every, _MOST_PER_STEP)),
        )

    def build(self, game: Game, config: Config) -> KuhnPost:
        return KuhnPost(game, self, config.seed)


register_algorithm("kuhn_post", KuhnPostConfig)


class KuhnPost(Algorithm):
    """The post's algorithm on Kuhn poker. One epoch is up to a hundred iterations."""

    def __init__(self, game: Game, algorithm: KuhnPostConfig, seed: int) -> None:
        super().__init__(game, algorithm, seed)
        self.algorithm = algorithm
        self.iterations_per_step = largest_divisor(algorithm.snapshot_every, _MOST_PER_STEP)
        self._compile(game)
        with initialisation(seed, "initial networks"):
            heads = (MaskedLinear(), MaskedSoftmax())
            networks = [fc(2, algorithm.width, _ACTIONS, _LAYERS, head).to(game.device) for head in heads]
        self.networks = nn.ModuleList(networks)
        # The post's Adam keeps its moments and clips nothing.
        self._optimizers = [FlatAdam(n, algorithm.learning_rate) for n in self.networks]
        self._gradients = [gradients_of(n) for n in self.networks]

    def _compile(self, game: Game) -> None:
        """The betting tree as plain Python: it has four decision nodes, visited once per iteration."""
        tree = game.tree
        self._number = history_numbers(game)
        self._nodes = list(self._number)
        self._children = {n: [int(c) for c in tree.child[n] if c >= 0] for n in self._nodes}
        # The post appends a node after its children: cb, c, b and the root.
        self._order = _children_first(self._children)
        self._player = tree.player.tolist()
        self._chips = {n: tree.chips[n].tolist() for n in range(tree.nodes)}
        self._winner = tree.winner.tolist()
        self._legal = torch.ones(1, _ACTIONS, dtype=torch.bool, device=game.device)
        self._weight = torch.ones(1, 1, device=game.device)

    # -- one iteration -------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        cards = np.random.default_rng((self.seed, self.iteration)).permutation(self.game.cards.ranks)[:2].tolist()
        rows = [[cards[self._player[n]], self._number[n]] for n in self._order]
        x = torch.tensor(rows, device=self.game.device)
        targets = self._traverse(cards, x)
        losses = [
            self._train(network, gradients, optimizer, x, target)
            for network, gradients, optimizer, target in zip(
                self.networks, self._gradients, self._optimizers, targets, strict=True
            )
        ]
        self.nodes_touched += len(self._chips)
        if not all(np.isfinite(losses)):
            raise ReproError(
                f"the networks diverged in iteration {self.iteration}; algorithm.learning_rate is "
                f"{self.algorithm.learning_rate}, try a lower one."
            )
        return {"loss/value": losses[0], "loss/policy": losses[1]}

    @torch.no_grad()
    def _traverse(self, cards: list[int], x: Tensor) -> tuple[Tensor, Tensor]:
        """Regrets and strategies `[nodes, actions]`, in the order of `x`."""
        positive = self.networks[0](x, self._legal.expand(len(x), -1)).clamp(min=0)
        total = positive.sum(1, keepdim=True)
        strategies = torch.where(total > 0, positive / total, 1 / _ACTIONS)
        value: dict[int, float] = {n: self._payoff(n, cards) for n in range(len(self._chips)) if n not in self._nodes}
        regrets = []
        for node, strategy in zip(self._order, strategies.tolist(), strict=True):
            utils = [value[child] for child in self._children[node]]
            value[node] = sum(p * u for p, u in zip(strategy, utils, strict=True))
            sign = -1 if self.algorithm.perspective == "own" and self._player[node] == 1 else 1
            regrets.append([sign * (u - value[node]) for u in utils])
        return torch.tensor(regrets, device=x.device), strategies

    def _payoff(self, node: int, cards: list[int]) -> float:
        """Player 0's chips at a terminal node."""
        winner = self._winner[node]
        if winner == SHOWDOWN:
            winner = 0 if cards[0] > cards[1] else 1
        elif self.algorithm.payoffs == "printed":
            winner = 1 - winner
        lost = self._chips[node][1 - winner]
        return lost if winner == 0 else -lost

    def _train(self, network: nn.Module, gradients: Any, optimizer: FlatAdam, x: Tensor, target: Tensor) -> float:
        """One Adam step per row, on the mean over actions of the squared error; returns the mean loss."""
        loss = 0.0
        for row, row_target in zip(x.split(1), target.split(1), strict=True):
            gradients.prepare(row, self._legal)
            loss += float((gradients.compute(self._weight, row_target) - row_target).square().mean())
            optimizer.update()
        return loss / len(x)

    # -- snapshots and checkpoints -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """`strategy`: the state of the strategy network."""
        return {"strategy": {key: t.to("cpu", copy=True) for key, t in self.networks[1].state_dict().items()}}

    def progress(self) -> dict[str, Any]:
        return {"moments": [{k: v.clone() for k, v in o.state[o.flat].items()} for o in self._optimizers]}

    def restore(self, saved: dict[str, Any]) -> None:
        for optimizer, moments in zip(self._optimizers, saved["moments"], strict=True):
            for name, value in optimizer.state[optimizer.flat].items():
                value.copy_(moments[name])


def _children_first(children: dict[int, list[int]], node: int = 0) -> list[int]:
    below = [n for child in children[node] if child in children for n in _children_first(children, child)]
    return [*below, node]
