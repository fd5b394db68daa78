"""D2CFR on Hold'em: too many infosets to play out all of them in every iteration.

What differs from `repro.algorithms.d2cfr`: an infoset is played out when a traversal first meets it in a betting level,
once for all rows that are there; `repro.engine.beliefs` says how. Play-outs follow the value networks' regrets as they
are, without rectification: with it, each of their decisions would need play-outs of its own. The first betting round is
a table, as in Deep CFR here, and has no state value to rectify. The policy loss's divergence is from the mean of the
last policy networks at the minibatch's infosets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.algorithms.d2cfr import D2CFRFamily
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.memory import Minibatch
from repro.engine.beliefs import Beliefs
from repro.engine.sampling import Traversals
from repro.networks.inputs import Inputs
from repro.policies.base import Policy
from repro.policies.network import NetworkPolicy, Seats, Uniform


class RectifiedPolicy(NetworkPolicy):
    """A strategy whose reading of the network needs to know the infosets, each of them once."""

    def __init__(
        self,
        network: nn.Module,
        inputs: Inputs,
        read: Callable[[Tensor, Tensor, Tensor], Tensor],
        opening: Tensor,
        first: int,
    ) -> None:
        super().__init__(network, inputs, lambda output, _: output, opening, first)
        self._read_at = read

    def asked(self, infosets: Tensor) -> Tensor:
        distinct, place = infosets.unique(return_inverse=True)
        features, legal = self._inputs(distinct)
        return self._read_at(distinct, self._network(features, legal), legal).index_select(0, place)


class HoldemD2CFR(D2CFRFamily, HoldemDeepCFR):
    """D2CFR on a Hold'em game; `recent` holds the policy networks' parameters, flat."""

    def prepare_strategies(self) -> None:
        super().prepare_strategies()
        self._beliefs = Beliefs(self.engine)

    # -- strategies ----------------------------------------------------------------------------------------------

    def collect(self, player: int) -> Traversals:
        self._draw = self.draws("play-outs", player)
        return super().collect(player)

    def _match(self, advantages: Tensor, legal: Tensor) -> Tensor:
        regrets = advantages[:, :-1] if self.dueling else advantages
        return super()._match(regrets, legal)

    def current_policy(self) -> Policy:
        plain = super().current_policy()
        if self.algorithm.rectification == "none":
            return plain
        return Seats(self.game, *(self._rectified_now(p, plain) for p in range(2)))

    def _rectified_now(self, player: int, plain: Policy) -> Policy:
        """The player's strategy of the moment; play-outs follow `plain`."""
        if not self.stored[player]:
            return Uniform(self.game)
        simulations, draw, fitted = self.algorithm.simulations, self._draw, len(self.stored[player])
        assert simulations is not None

        def read(infosets: Tensor, output: Tensor, legal: Tensor) -> Tensor:
            played = self._beliefs.played_out(plain, infosets, simulations, draw)
            return super(HoldemD2CFR, self)._match(self.rectified(output, played, fitted), legal)

        opening, network = self.opening_strategies[player][-1], self.value_networks[player]
        return RectifiedPolicy(network, self.features.rows, read, opening, self._first[player])

    # -- the policy network ----------------------------------------------------------------------------------------

    def keep_policy(self, player: int) -> Tensor:
        return self._average_optimizers[player].flat.detach().clone()

    def reference(self, player: int) -> Callable[[Minibatch], Tensor]:
        network = self.build("average").to(self.game.device)
        # The network's parameters become views of one tensor, so that loading a policy is one copy.
        flat = parameters_to_vector(network.parameters()).detach()
        vector_to_parameters(flat, network.parameters())
        recent = list(self.recent[player])

        @torch.no_grad()
        def at(batch: Minibatch) -> Tensor:
            assert batch.inputs is not None
            policies = []
            for parameters in recent:
                flat.copy_(parameters)
                policies.append(network(*batch.inputs))
            return torch.stack(policies).mean(0)

        return at

    def evaluate(self) -> None:
        self.measure(self.policy_loss)

    def artifact(self) -> dict[str, Any]:
        """`average`: per player the state of the policy network; `average_opening`: the first betting round's table."""
        stored = super().artifact()
        return {name: stored[name] for name in ("average", "average_opening")}
