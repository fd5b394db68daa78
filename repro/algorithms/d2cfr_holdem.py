"""D2CFR on Hold'em: too many infosets to play out all of them in every iteration.

What differs from `repro.algorithms.d2cfr`: an infoset is played out when traversals meet it, once for all of them that
are there in one step down the tree; `repro.engine.beliefs` says how. Play-outs follow the value networks' regrets as
they are, without rectification: with it, each of their decisions would need play-outs of its own. The first betting
round is a table, as in Deep CFR here, and has no state value to rectify. The policy loss's divergence is from the mean
of the last policy networks at the minibatch's infosets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.algorithms.d2cfr import D2CFRFamily
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.memory import Minibatch
from repro.engine.beliefs import Beliefs
from repro.engine.sampling import Traversals
from repro.policies.base import Policy
from repro.policies.network import NetworkPolicy, Seats, Uniform
from repro.policies.regret_matching import regret_matching


class HoldemD2CFR(D2CFRFamily, HoldemDeepCFR):
    """D2CFR on a Hold'em game; `recent` holds the policy networks' parameters, flat.

    Attributes:
        fitted: per player, the iteration in which the value network was fitted, 0 before.
    """

    def prepare_strategies(self) -> None:
        super().prepare_strategies()
        self._beliefs = Beliefs(self.engine)
        self.fitted = [0, 0]
        self._traverser = 0

    # -- strategies ----------------------------------------------------------------------------------------------

    def collect(self, player: int) -> Traversals:
        self._traverser = player
        return super().collect(player)

    def store_strategy(self, player: int) -> None:
        super().store_strategy(player)
        # D2CFR has no B^M: only the newest is ever played.
        for kept in (self.stored, self.opening_strategies):
            kept[player] = kept[player][-1:]
        self.fitted[player] = self.iteration

    def _regret_matching(self, infosets: Tensor, advantages: Tensor, legal: Tensor) -> Tensor:
        regrets = advantages[:, :-1] if self.dueling else advantages
        return super()._regret_matching(infosets, regrets, legal)

    def current_policy(self) -> Policy:
        plain = super().current_policy()
        if self.algorithm.rectification == "none":
            return plain
        draw = self.draws("play-outs", self._traverser)
        return Seats(self.game, *(self._rectified_now(p, plain, draw) for p in range(2)))

    def _rectified_now(self, player: int, plain: Policy, draw: torch.Generator) -> Policy:
        """The player's strategy of the moment; play-outs follow `plain`."""
        if not self.stored[player]:
            return Uniform(self.game)
        simulations, fitted = self.algorithm.simulations, self.fitted[player]
        assert simulations is not None

        def read(infosets: Tensor, output: Tensor, legal: Tensor) -> Tensor:
            distinct, place = infosets.unique(return_inverse=True)
            played = self._beliefs.played_out(plain, distinct, simulations, draw)
            regrets = self.rectified(output, played.index_select(0, place), fitted)
            return regret_matching(regrets, legal, self.algorithm.when_no_positive)

        opening, network = self.opening_strategies[player][-1], self.value_networks[player]
        return NetworkPolicy(network, self.features.rows, read, opening, self._first[player])

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

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "fitted": list(self.fitted)}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.fitted = list(saved["fitted"])

    def artifact(self) -> dict[str, Any]:
        """`average`: per player the state of the policy network; `average_opening`: the first betting round's table."""
        stored = super().artifact()
        return {name: stored[name] for name in ("average", "average_opening")}
