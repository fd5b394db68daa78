"""Deep CFR's network as the tables that `repro.networks.card_steps` takes."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from repro.games.game import Game
from repro.networks import card_steps, steps
from repro.networks.card_steps import CardNetwork
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.inputs import holdem_features
from repro.networks.modules import MaskedLinear, MaskedSoftmax, Merge, Network
from repro.networks.optimizers import FlatAdam, FlatOptimizer
from repro.networks.programs import NotCompilableError, Program, compiled_focus, if_compilable


def card_network_of(network: nn.Module, columns: NDArray[np.int64]) -> CardNetwork:
    """The tables of a network made by `repro.networks.modules.deep_cfr`, its parameters in their own order.

    Args:
        columns: `[cards, 3]`, as of `CardNetwork`.

    Raises:
        NotCompilableError: it is another network.
    """
    if not isinstance(network, Network) or type(network.head) not in (MaskedLinear, MaskedSoftmax):
        raise NotCompilableError(f"no compiled form of {type(network).__name__}")
    both = network.body[0]
    if not isinstance(both, Merge) or len(both.branches) != 2:
        raise NotCompilableError("no compiled form without branches for cards and betting")
    card_branch, bet_branch = (cast(nn.Sequential, branch) for branch in both.branches)
    sets = card_branch[0]
    if not isinstance(sets, Merge):
        raise NotCompilableError("no compiled form without sets of cards")
    embeddings = [cast(nn.Linear, cast(nn.Sequential, branch)[0]) for branch in sets.branches]
    if any(e.bias is not None for e in embeddings):
        raise NotCompilableError("no compiled form of sets of cards that are more than embeddings")
    # In the order of the network's parameters: embeddings, the rest of the card branch, the betting branch, the trunk.
    sizes = [e.weight.numel() for e in embeddings]
    first = sum(sizes)
    after_first = first + sets.linear.weight.numel() + sets.linear.bias.numel()
    program = Program()
    program.given(sets.linear.out_features, after_first)
    joining = program.sequence(nn.Sequential(*list(card_branch)[2:]), 0) + 1
    bets = Program()
    bets.begin(program.parameters)
    bets.sequence(bet_branch, -1)
    join = bets.parameters
    after_join = join + both.linear.weight.numel() + both.linear.bias.numel()
    program.given(both.linear.out_features, after_join)
    trunk = program.sequence(nn.Sequential(*list(network.body)[2:]), joining)
    kind = steps.MASKED_LINEAR if type(network.head) is MaskedLinear else steps.MASKED_SOFTMAX
    return CardNetwork(
        layers=np.array(program.layers), bets=np.array(bets.layers), joining=joining,
        head=np.array([kind, trunk, trunk]), embeddings=np.cumsum([0, *sizes[:-1]]),
        first_weights=first, join_weights=join, columns=columns,
    )  # fmt: skip


class CardAnswers:
    """What a network answers about infosets.

    Args:
        network: on the CPU.
        features: of the game.

    Raises:
        NotCompilableError: there is no compiled form of the network.
    """

    def __init__(self, network: nn.Module, features: HoldemFeatures) -> None:
        self._network, self._features = card_network_of(network, features.card_columns), features
        self._parameters = parameters_to_vector(network.parameters()).detach().numpy()

    def of_rows(self, infosets: Tensor) -> Tensor:
        """`[n]` infosets -> `[n, actions]`."""
        cards, node = self._features.numbered_cards(infosets)
        nodes, which = node.unique(return_inverse=True)
        states, legal = self._at(nodes)
        found = np.empty((len(infosets), legal.shape[1]), np.float32)
        card_steps.card_rows(self._network, states, legal, self._parameters, cards.numpy(), which.numpy(), found)
        return torch.from_numpy(found)

    def of_pairs(self, nodes: Tensor, cells: Tensor) -> Tensor:
        """`[nodes, cells, actions]` of betting nodes and cells of one round; each cell is looked at once."""
        cards = self._features.numbered_cells(int(self._features.game.tree.round[nodes[0]]), cells)
        states, legal = self._at(nodes)
        found = np.empty((len(nodes), len(cells), legal.shape[1]), np.float32)
        card_steps.card_outputs(self._network, states, legal, self._parameters, cards.numpy(), found)
        return torch.from_numpy(found)

    def _at(self, nodes: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What is known of betting nodes: the betting branch's inputs, and the legal mask."""
        return self._features.state[nodes].numpy(), self._features.game.tree.legal[nodes].float().numpy()


class CardSteps:
    """SGD steps of a network on minibatches of one player's infosets.

    Args:
        network, optimizer: the optimiser holds the network's parameters.
        game: a Hold'em game on the CPU.
        player: whose infosets the minibatches are of; they count them from her first.
        focus: as of `repro.networks.losses.importance`; None: all errors count the same.

    Raises:
        NotCompilableError: there is no compiled form of the network.
    """

    def __init__(
        self, network: nn.Module, optimizer: FlatAdam, game: Game, player: int, focus: float | None = None
    ) -> None:
        features = holdem_features(game)
        self._network, self._optimizer = card_network_of(network, features.card_columns), optimizer
        self._focus = compiled_focus(focus, int(self._network.head[0]))
        self._features, self._first = features, game.player_slice[player].start
        own = (game.tree.player == player).nonzero().flatten()
        self._states, self._legal = features.state[own].numpy(), game.tree.legal[own].float().numpy()
        self._number = torch.full((game.tree.nodes,), -1).index_copy_(0, own, torch.arange(len(own)))

    def take(
        self, weight: Tensor, target: Tensor, rates: NDArray[np.float64], updates: int, infosets: Tensor | None = None
    ) -> NDArray[np.float64]:
        """The losses of steps with these learning rates, of which the first `updates` are taken.

        Args:
            weight, target, infosets: `[minibatches, rows]`, `[minibatches, rows, actions]`, `[minibatches, rows]`;
                steps beyond the last minibatch are on that.

        Raises:
            ValueError: infosets are the other player's.
        """
        assert infosets is not None
        optimizer, losses = self._optimizer, np.empty(len(rates))
        state = optimizer.state[optimizer.flat]
        cards, nodes = self._features.numbered_cards(infosets.flatten() + self._first)
        numbers, steps_and_rows = self._number.take(nodes), tuple(infosets.shape)
        # The compiled loop checks nothing.
        if int(numbers.min()) < 0:
            raise ValueError("infosets are the other player's")
        card_steps.take_card_steps(
            self._network, self._states, self._legal, *optimizer.arrays(), int(state["step"]), rates,
            float(optimizer.clip_norm), float(optimizer.averaging or 0), optimizer.matrices, optimizer.muon_over_adam,
            self._focus,
            cards.view(*steps_and_rows, -1).numpy(), numbers.view(steps_and_rows).numpy(), weight.numpy(),
            target.numpy(), updates, losses,
        )  # fmt: skip
        state["step"] += min(updates, len(rates))
        return losses


def compiled_card_steps(
    network: nn.Module, optimizer: FlatOptimizer, game: Game, player: int, focus: float | None = None
) -> CardSteps | None:
    """Steps of a network that sees cards, if there is such a form of it."""
    if game.cards.features != "cards" or game.device.type != "cpu" or not isinstance(optimizer, FlatAdam):
        return None
    return if_compilable(CardSteps, network, optimizer, game, player, focus)
