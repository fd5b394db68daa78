"""D2CFR [Li et al.]: Deep CFR with a dueling value network, rectified state values and another policy loss.

The value network (DNet) learns the sampled regrets `r = Q - V` as Deep CFR's does, and the sampled state values V
beside them. Strategies are matched to *rectified* regrets (eq. 6): `Q - (alpha V + beta V_MC)` with
`alpha = 0.01 + t / (t + 1)` and `beta = 1 - alpha`, which is `r + beta (V - V_MC)`: all actions of an infoset are
shifted by the same amount, by less from iteration to iteration, and with the other sign once beta is negative (t > 99).

V_MC of an infoset is the mean return of play-outs under the strategies of the moment, those that the player's update
replaces. The opponent's hand is drawn as likely as the deal and the opponent's own actions make it. In games with one
private card each all infosets are played out together, whether or not a traversal will visit them; hands in the same
history are moved on together (see `repro.engine.histories`), so that the cost hardly depends on their number. For
Hold'em see `repro.algorithms.d2cfr_holdem`.

The policy network is trained on from where it was, every `policy_every` iterations. Its loss (eq. 7) has a term
`-gamma KL[policy || mean of the last c policies]`, the same for all samples; the squared error counts with the sample's
iteration. As printed, it rewards moving away from the recent policies.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRFamily
from repro.algorithms.memory import Minibatch
from repro.config import D2CFRConfig, ReadoutConfig
from repro.engine.histories import Histories
from repro.engine.sampling import Traversals
from repro.networks.modules import Network, value_network
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import regret_matching


def rectification_weight(iteration: int, mixing: str) -> float:
    """`beta` of eq. 6: how much of the state value comes from play-outs."""
    beta = 0.99 - iteration / (iteration + 1)
    return beta if mixing == "printed" else min(max(beta, 0.0), 1.0)


class D2CFRFamily(DeepCFRFamily):
    """What D2CFR does whatever the size of the game: the losses of both networks.

    Comes before the class that knows how strategies are held, which defines what is called by `super()` here.

    Attributes:
        recent: per player, the last policies in the form that `keep_policy` gives them, newest last.
    """

    algorithm: D2CFRConfig

    def prepare_strategies(self) -> None:
        super().prepare_strategies()  # type: ignore[safe-super]
        self.recent: list[deque[Tensor]] = [deque(maxlen=self.algorithm.kl_window) for _ in range(2)]
        self.policy_loss = 0.0

    # -- the value network -----------------------------------------------------------------------------------------

    @property
    def dueling(self) -> bool:
        """Whether the value network has a branch for the state's value."""
        return self.network.architecture == "dnet"

    def build(self, which: str) -> Network:
        if which == "value" and self.dueling:
            scale = self.algorithm.state_loss**0.5
            return value_network(self.network, self.columns, self.game.num_actions, scale)
        return super().build(which)

    @property
    def value_columns(self) -> int:
        return self.game.num_actions + self.dueling

    def value_targets(self, traversals: Traversals) -> Tensor:
        regrets = super().value_targets(traversals)
        if not self.dueling:
            return regrets
        assert traversals.state_values is not None
        # The squared error of a column times a factor counts by its square.
        scale = self.algorithm.state_loss**0.5 / self.algorithm.regret_unit
        return torch.cat([regrets, scale * traversals.state_values[:, None]], 1)

    def rectified(self, output: Tensor, played: Tensor | None, iteration: int) -> Tensor:
        """`[n, actions]` regrets that strategies are matched to, eq. 6.

        Args:
            output: `[n, actions + 1]` of a value network with both branches.
            played: `[n]` chips, V_MC; None without rectification.
            iteration: in which the network was fitted.
        """
        advantages, state = output[:, :-1], output[:, -1] / self.algorithm.state_loss**0.5
        if played is None:
            return advantages
        beta = rectification_weight(iteration, self.algorithm.mixing)
        return advantages + beta * (state - played.float() / self.algorithm.regret_unit)[:, None]

    # -- the policy network ----------------------------------------------------------------------------------------

    @abstractmethod
    def keep_policy(self, player: int) -> Tensor:
        """The player's policy network of the moment, in a form that `reference` can use later."""

    @abstractmethod
    def reference(self, player: int) -> Callable[[Minibatch], Tensor]:
        """Maps a minibatch to `[n, actions]`, the mean of the player's last policies at its infosets."""

    def advance(self) -> dict[str, float]:
        measured = super().advance()
        if self.iteration % self.algorithm.policy_every == 0 or self.iteration == self.iterations:
            measured["loss/policy"] = self.policy_loss = self._train_policies()
        return measured

    def _train_policies(self) -> float:
        losses = [self.train_average_network(player) for player in range(2)]
        for player, recent in enumerate(self.recent):
            recent.append(self.keep_policy(player))
        return sum(losses) / 2

    def train_average_network(self, player: int) -> float:
        if not (self.algorithm.kl_weight and self.recent[player]):
            return super().train_average_network(player)
        learner, batches = self.learner("average", player), self.begin_fit("average", player, merged=False)
        reference, regression = self.reference(player), self.algorithm.average
        with self.explaining_divergence("average", player):
            return self.fit_to(
                learner.network, learner.optimizer, batches, player, steps=regression.steps,
                schedule=regression.schedule,
                penalty=lambda batch, output: self._divergence_gradient(output, reference(batch)),
            )  # fmt: skip

    def _divergence_gradient(self, output: Tensor, against: Tensor) -> Tensor:
        """Of the loss's second term, scaled as the first is: by 2 or 1 over T, and over rows and actions."""
        scale = 2.0 if self.algorithm.loss_weight == "2t/T" else 1.0
        weight = self.algorithm.kl_weight * scale / (self.iteration * output.numel())
        sign = -1.0 if self.algorithm.kl_sign == "minus" else 1.0
        # d/dp of p log(p / q); actions that are not legal have probability 0 in both.
        slope = torch.where(output > 0, (output / against).log() + 1, 0.0)
        return sign * weight * slope

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        recent = [torch.stack(list(r)) if r else torch.empty(0) for r in self.recent]
        before = super().progress()  # type: ignore[safe-super]
        return {**before, "recent": recent, "policy_loss": self.policy_loss}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)  # type: ignore[safe-super]
        for recent, tables in zip(self.recent, saved["recent"], strict=True):
            recent.extend(tables.unbind() if len(tables) else ())
        self.policy_loss = saved["policy_loss"]


class D2CFR(D2CFRFamily, DeepCFR):
    """D2CFR on a game with one private card each; `recent` holds tables `[infosets of the player, actions]`."""

    def prepare_strategies(self) -> None:
        super().prepare_strategies()
        self._histories = None if self.algorithm.rectification == "none" else Histories(self.game)

    @torch.no_grad()
    def _strategy_of(self, player: int) -> Tensor:
        if not self.dueling:
            return super()._strategy_of(player)
        mine = self.game.player_slice[player]
        legal = self.game.legal[mine]
        output = self.value_networks[player](self.features[mine], legal)
        played = self._state_values(player)
        regrets = self.rectified(output, None if played is None else played[mine], self.iteration)
        return regret_matching(regrets, legal, self.algorithm.when_no_positive)

    def _state_values(self, player: int) -> Tensor | None:
        """`[infosets]` V_MC in chips, under the strategies that the update replaces."""
        if self._histories is None:
            return None
        if self.algorithm.rectification == "exact":
            return self._histories.state_values(self.strategy)
        assert self.algorithm.simulations is not None
        draw = self.draws("play-outs", player)
        return self._histories.played_out(self.strategy, self.algorithm.simulations, draw)

    def _keep(self, player: int) -> None:
        """Nothing: D2CFR has no B^M."""

    @torch.no_grad()
    def keep_policy(self, player: int) -> Tensor:
        mine = self.game.player_slice[player]
        table: Tensor = self.average_networks[player](self.features[mine], self.game.legal[mine])
        return table

    def reference(self, player: int) -> Callable[[Minibatch], Tensor]:
        mean = torch.stack(list(self.recent[player])).mean(0)

        def at(batch: Minibatch) -> Tensor:
            assert batch.infosets is not None
            return mean.index_select(0, batch.infosets)

        return at

    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        table = torch.cat([recent[-1] for recent in self.recent]).double()
        return TabularPolicy(table / table.sum(1, keepdim=True)), {"loss/policy": self.policy_loss}

    def artifact(self) -> dict[str, Any]:
        """`value`, `average`: per player the state of the last network of each kind."""
        kinds = (("value", self.value_networks), ("average", self.average_networks))
        return {kind: [{k: v.cpu() for k, v in n.state_dict().items()} for n in networks] for kind, networks in kinds}
