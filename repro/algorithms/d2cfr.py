"""D2CFR [Li et al.]: Deep CFR with a dueling value network, rectified state values and another policy loss.

The value network (DNet) learns the sampled regrets `r = Q - V` as Deep CFR's does, and the sampled state values V
beside them. A state value is *rectified* (eq. 6): `alpha V + beta V_MC` with `alpha = 0.01 + t / (t + 1)` and
`beta = 1 - alpha`, where t is the iteration of the player's traversals: beta becomes smaller from iteration to
iteration, and negative after the 99th. The text can be read in two ways:

- of `strategies` (Algorithm 2): they are matched to `Q - (alpha V + beta V_MC)`, which is `r + beta (V - V_MC)`: all
  actions of an infoset are shifted by the same amount;
- of `samples` (caption of Fig. 3, Sec. IV): what is learned of an action is its sampled value less `alpha V + beta
  V_MC`, where Deep CFR takes the mean under the player's strategy, and strategies are matched to what was learned.

V_MC of an infoset is the mean return of play-outs under the strategies of the moment, those that the player's update
replaces. The opponent's hand is drawn as likely as the deal and the opponent's own actions make it. Where strategies
are listed all infosets are played out together, whether or not a traversal will visit them; hands in the same history
are moved on together (see `repro.engine.histories`), so that the cost hardly depends on their number.

Where strategies are asked there are too many infosets for that: one is played out when traversals meet it, once for all
of them that are there in one step down the tree; `repro.engine.beliefs` says how. Play-outs follow the value networks'
regrets as they are, without rectification: with it, each of their decisions would need play-outs of its own. The first
betting round is a table, as in Deep CFR there, and has no state value to rectify.

The policy network is trained on from where it was, every `policy_every` iterations. Its loss (eq. 7) has a term
`-gamma KL[policy || mean of the last c policies]`, the same for all samples; the squared error counts with the sample's
iteration. As printed, it rewards moving away from the recent policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from repro.algorithms.base import Training
from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.strategies import Rectify
from repro.config.fields import at_least, multiplies, one_of
from repro.config.schema import Config, Leaves, NetworkConfig, register_algorithm
from repro.engine.beliefs import Beliefs
from repro.engine.histories import Histories
from repro.engine.sampling import SamplingEngine, Traversals
from repro.games.game import Game
from repro.networks.modules import StateAndAdvantages
from repro.networks.sizes import network_sizes
from repro.policies.base import Policy, TabularPolicy
from repro.policies.network import AverageNetwork
from repro.policies.readout import Readout


@dataclass
class D2CFRConfig(DeepCFRConfig):
    """D2CFR: Deep CFR with a dueling network, rectified state values and another loss of the policy network.

    With `network=fc`, no rectification and `kl_weight` 0 it is Deep CFR.
    """

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {"average_network": AverageNetwork}
    MANY_SEEDS: ClassVar[bool] = False
    SEVERAL_PROCESSES: ClassVar[bool] = False
    DUELING: ClassVar[bool] = True

    # Where the state value comes from that, mixed with the network's own, advantages are taken against: nowhere (the
    # network's alone), play-outs from each infoset under the current strategies, or their expectation.
    rectification: str = one_of("none", "play_outs", "exact")
    # Play-outs per infoset; null without them.
    simulations: int | None = multiplies(at_least(1, None))
    # Weight of that other value in iteration t: 0.99 - t / (t + 1), printed as it is or clipped to [0, 1].
    mixing: str = one_of("printed", "clipped", default="printed")
    # What the rectified state value is taken from: the values of actions that strategies are matched to, or those that
    # were sampled.
    rectified: str = one_of("strategies", "samples", default="strategies")
    # Weight of the squared error of the state value, beside those of the regrets; 0 is the loss of Algorithm 1.
    state_loss: float = at_least(0, 1.0)
    # The policy network is trained every so many iterations, and after the last.
    policy_every: int = at_least(1, 10)
    # Weight, sign and window of the policy loss's divergence from the mean of the last policies: `minus` is as printed.
    kl_weight: float = at_least(0, 0.0)
    kl_sign: str = one_of("minus", "plus", default="minus")
    kl_window: int = at_least(1, 10)

    def problems(self, config: Config, game: Any) -> Iterator[str]:
        dueling = config.network is not None and config.network.architecture == "dnet"
        if config.network is not None and self.rectification != "none" and not dueling:
            yield (
                f"algorithm.rectification is {self.rectification}, but network.architecture "
                f"{config.network.architecture}; only dnet has a state value to rectify."
            )
        if (self.rectification == "play_outs") != (self.simulations is not None):
            yield (
                f"algorithm.simulations is {self.simulations} and algorithm.rectification {self.rectification}; "
                "play_outs need a number, others take null: add algorithm.simulations=null."
            )
        yield from self._problems_without_effect()
        if self.state_loss != 1 and not dueling:
            yield f"algorithm.state_loss is {self.state_loss}, which has no effect without network=dnet; leave it out."
        if dueling and self.divide_by_legal:
            yield "algorithm.divide_by_legal is true; regrets and state values must have one unit, use false."
        yield from self._problems_of_policies()
        yield from super().problems(config, game)
        yield from self._problems_of_state_values(game)

    def _problems_without_effect(self) -> Iterator[str]:
        for key, value, needed in (
            ("mixing", "clipped", self.rectification != "none"), ("rectified", "samples", self.rectification != "none"),
            ("kl_sign", "plus", self.kl_weight > 0),
        ):  # fmt: skip
            if getattr(self, key) == value and not needed:
                condition = "kl_weight is 0" if key == "kl_sign" else "rectification is none"
                yield f"algorithm.{key} is {value}, which has no effect where algorithm.{condition}; leave it out."
        for which, regression in self.regressions.items():
            if regression.precision != "fp32":
                yield f"algorithm.{which}.precision is {regression.precision}; {self.name} takes fp32 only."

    def _problems_of_policies(self) -> Iterator[str]:
        if self.average is None:
            yield f"algorithm.average is null; {self.name} has nothing but its policy networks to be played."
        if self.snapshot_every % self.policy_every:
            yield (
                f"algorithm.snapshot_every is {self.snapshot_every}; it must be a multiple of algorithm.policy_every, "
                f"{self.policy_every}, so that the policy network that is measured is a new one."
            )
        if self.memory != "reservoir":
            yield f"algorithm.memory is {self.memory}; {self.name} takes reservoir only."
        if not self.linear:
            yield f"algorithm.loss_weight is {self.loss_weight}; {self.name} takes t/T and 2t/T only."

    def _problems_of_state_values(self, game: Game) -> Iterator[str]:
        histories, listed = game.exact == "sequence_form", self.lists(game)
        if self.rectification == "exact" and not (histories and listed):
            yield (
                f"algorithm.rectification is exact; the game {game.name} has too many infosets, use play_outs or none."
            )
        if self.rectification == "play_outs" and histories != listed:
            held, needed = ("listed", "asked") if listed else ("asked", "listed")
            yield (
                f"algorithm.rectification is play_outs; in the game {game.name} that needs "
                f"algorithm.strategies={needed}, and they are {held}."
            )
        if self.rectified == "samples" and not listed:
            yield (
                "algorithm.rectified is samples; where strategies are asked, as in the game "
                f"{game.name}, use strategies."
            )
        if self.rectification == "play_outs" and not listed and not self.tables_opening(game):
            yield "algorithm.opening is network; play-outs start after the first betting round, use table."

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        left = super().leaves(config, game)
        assert left is not None
        assert config.network is not None
        _, average = network_sizes(config.network, game)
        # Of the last policy networks the parameters; there is no B^M.
        recent = 2 * min(self.kl_window, self.iterations)
        return replace(
            left, row=0.0, checkpoint=left.checkpoint + recent * average.bytes, tensors=left.tensors + recent
        )

    def build(self, game: Game, config: Config) -> Training:
        assert config.network is not None
        return D2CFR(game, self, config.network, config.seed)


register_algorithm("d2cfr", D2CFRConfig)


def rectification_weight(iteration: int, mixing: str) -> float:
    """`beta` of eq. 6: how much of the state value comes from play-outs."""
    beta = 0.99 - iteration / (iteration + 1)
    return beta if mixing == "printed" else min(max(beta, 0.0), 1.0)


class StateValues(Protocol):
    """V_MC: what the players to act win on average when both follow a policy.

    Attributes:
        engine: what plays hands out.
    """

    engine: SamplingEngine

    def __call__(self, policy: Policy, infosets: Tensor, draw: torch.Generator) -> Tensor:
        """`[n]` infosets -> `[n]` float64 chips."""
        ...


class ListedStateValues:
    """Of a game with one private card each, from its histories; all infosets are played out together.

    Args:
        game: the game.
        simulations: play-outs per infoset; None: their expectation.
    """

    def __init__(self, game: Game, simulations: int | None) -> None:
        self.histories, self._simulations = Histories(game), simulations
        self.engine = self.histories.engine

    def __call__(self, policy: Policy, infosets: Tensor, draw: torch.Generator) -> Tensor:
        assert isinstance(policy, TabularPolicy)
        if self._simulations is None:
            values = self.histories.state_values(policy.table)
        else:
            values = self.histories.played_out(policy.table, self._simulations, draw)
        return values.index_select(0, infosets)


class AskedStateValues:
    """Of a Hold'em game, after the first betting round, by play-outs from the infosets that are met, each once.

    Args:
        engine: the game's.
        simulations: play-outs per infoset.
    """

    def __init__(self, engine: SamplingEngine, simulations: int) -> None:
        self.engine, self._beliefs, self._simulations = engine, Beliefs(engine), simulations

    def __call__(self, policy: Policy, infosets: Tensor, draw: torch.Generator) -> Tensor:
        distinct, place = infosets.unique(return_inverse=True)
        return self._beliefs.played_out(policy, distinct, self._simulations, draw).index_select(0, place)


class D2CFR(DeepCFR):
    """D2CFR.

    Attributes:
        recent: per player, the parameters of the last policy networks, flat, newest last.
        state_values: V_MC; None without rectification.
        played_out_before: histories of play-outs before this process continued the training.
    """

    algorithm: D2CFRConfig

    def __init__(self, game: Game, algorithm: D2CFRConfig, network: NetworkConfig, seed: int) -> None:
        super().__init__(game, algorithm, network, seed)
        self.recent: list[deque[Tensor]] = [deque(maxlen=algorithm.kl_window) for _ in range(2)]
        self.played_out_before = 0.0
        self.state_values: StateValues | None = None
        if algorithm.rectification != "none" and algorithm.lists(game):
            self.state_values = ListedStateValues(game, algorithm.simulations)
        elif algorithm.rectification != "none":
            assert algorithm.simulations is not None
            self.state_values = AskedStateValues(self.engine, algorithm.simulations)

    def counts(self) -> dict[str, float]:
        """Traversals' histories as ever, and those of play-outs, which are many more, beside them."""
        if self.state_values is None or self.algorithm.simulations is None:
            return super().counts()
        played = self.played_out_before + float(self.state_values.engine.played_out)
        return {**super().counts(), "nodes_played_out": played}

    def history_names(self) -> list[str]:
        """Nothing: D2CFR has no B^M."""
        return []

    # -- the value network -----------------------------------------------------------------------------------------

    @property
    def dueling(self) -> bool:
        """Whether the value network has a branch for the state's value."""
        return self.network.architecture == "dnet"

    @property
    def value_columns(self) -> int:
        return self.game.num_actions + self.dueling

    @property
    def _state_scale(self) -> float:
        """What state values are multiplied by while they are learned: the squared error counts by its square."""
        return self.algorithm.state_loss**0.5

    def value_targets(self, traversals: Traversals, policy: Policy) -> Tensor:
        regrets = super().value_targets(traversals, policy)
        if not self.dueling:
            return regrets
        assert traversals.state_values is not None
        sampled = traversals.state_values[:, None] / self.algorithm.regret_unit
        if self.algorithm.rectified == "samples":
            infosets = traversals.advantages.infosets
            shift = sampled - self._rectified_state(infosets, policy)
            regrets = regrets + shift * self.game.legal_at(infosets)
        return torch.cat([regrets, self._state_scale * sampled], 1)

    @torch.no_grad()
    def _rectified_state(self, infosets: Tensor, policy: Policy) -> Tensor:
        """`[n, 1]` alpha V + beta V_MC of the player whose infosets these are."""
        player = int(infosets[0] >= self.game.player_slice[1].start)
        state = self.value_networks[player](*self.strategies.inputs(infosets))[:, -1:]
        assert self.state_values is not None
        played = self.state_values(policy, infosets, self.draws("play-outs", player))[:, None].float()
        beta = rectification_weight(self.iteration, self.algorithm.mixing)
        return (1 - beta) * state + beta * played / self.algorithm.regret_unit

    def _fit(self, which: str, player: int, last_step: Any = None) -> float:
        head = self.value_networks[player].head
        if not isinstance(head, StateAndAdvantages) or which != "value":
            return super()._fit(which, player, last_step)
        head.state_scale = self._state_scale
        try:
            return super()._fit(which, player, last_step)
        finally:
            head.state_scale = 1.0

    def rectification(self, player: int) -> Rectify | None:
        state_values = self.state_values
        if state_values is None or self.algorithm.rectified != "strategies":
            return None
        draw = self.draws("play-outs", player)

        def rectify(policy: Policy, infosets: Tensor, output: Tensor, fitted: int) -> Tensor:
            return self.rectified(output, state_values(policy, infosets, draw), fitted + 1)

        return rectify

    def rectified(self, output: Tensor, played: Tensor, iteration: int) -> Tensor:
        """`[n, actions]` regrets that strategies are matched to, eq. 6.

        Args:
            output: `[n, actions + 1]` of a value network with both branches.
            played: `[n]` chips, V_MC.
            iteration: of the player's next traversals with these strategies; the opponent's may meet them before.
        """
        beta = rectification_weight(iteration, self.algorithm.mixing)
        return output[:, :-1] + beta * (output[:, -1] - played.float() / self.algorithm.regret_unit)[:, None]

    # -- the policy network ----------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        measured = super().advance()
        if self.iteration % self.algorithm.policy_every == 0 or self.iteration == self.iterations:
            measured.update(self.averaged([self.train_average_network(player) for player in range(2)]))
            for player, recent in enumerate(self.recent):
                recent.append(self.learner("average", player).optimizer.flat.detach().clone())
        return measured

    def prepare_snapshot(self) -> dict[str, float]:
        """Nothing: policy networks are trained in iterations of their own."""
        return {}

    def train_average_network(self, player: int) -> float:
        if not (self.algorithm.kl_weight and self.recent[player]):
            return super().train_average_network(player)
        learner, batches = self.learner("average", player), self.begin_fit("average", player, merged=False)
        network = self.architecture("average").to(self.game.device)
        reference = self.strategies.mean_of(network, list(self.recent[player]), player)
        with self.explaining_divergence("average", player):
            return self.strategies.fit_to(
                learner.network, learner.optimizer, batches, player,
                steps=learner.regression.steps_at(self.iteration), schedule=learner.regression.schedule,
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
        recent = [[each.clone() for each in recent] for recent in self.recent]
        return {**super().progress(), "recent": recent, "played_out": self.counts().get("nodes_played_out", 0.0)}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.played_out_before = saved.get("played_out", 0.0)
        for recent, parameters in zip(self.recent, saved["recent"], strict=True):
            recent.clear()
            recent.extend(each.to(self.game.device) for each in parameters)
