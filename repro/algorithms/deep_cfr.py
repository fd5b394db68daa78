"""Deep CFR [Brown et al. 2018] and SD-CFR [Steinberger 2019] as one training.

One `step` is one CFR iteration: for each player in turn collect samples by external sampling against the
opponent's current strategy, fit the value network, and store it in B^M. Player 0 goes first, so player 1's traversals
meet player 0's new strategy (alternating updates, as in the SD-CFR code). The epoch counter of Lightning is the CFR
iteration. How current strategies are held is a part of its own (`repro.algorithms.strategies`).

Both algorithms train exactly this. They differ in the *read-outs* that turn what was stored into an average strategy:
the average of B^M (SD-CFR), or the network S-hat trained on the strategy memory B^s (Deep CFR). S-hat is trained
whenever a snapshot is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from repro.algorithms.base import Algorithm, Training
from repro.algorithms.memory import Aggregated, Memory, Reservoir, Window, aggregated_bytes, entry_bytes
from repro.algorithms.minibatches import Minibatch
from repro.algorithms.ranks import ALONE, Ranks
from repro.algorithms.strategies import Asked, Listed, Rectify, Strategies, are_listed, listing_problems
from repro.common.errors import ReproError
from repro.common.seeding import initialisation
from repro.config.fields import above, added, at_least, multiplies, one_of
from repro.config.memory import network_bytes
from repro.config.schema import AlgorithmConfig, Config, Leaves, NetworkConfig, RegressionConfig, register_algorithm
from repro.engine.public_chance import PublicChanceSampling
from repro.engine.sampling import BYTES_PER_DEAL, InfosetSamples, SamplingEngine, Traversals, most_met
from repro.games.game import Game
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.networks.purposes import purpose_problems
from repro.networks.sizes import network_sizes
from repro.policies.base import Policy
from repro.policies.ensemble import BM, AsCollected
from repro.policies.network import AverageNetwork, opening_infosets
from repro.policies.readout import Readout
from repro.policies.snapshot import History


@dataclass
class DeepCFRConfig(AlgorithmConfig):
    """Deep CFR and SD-CFR, which differ in their read-outs only.

    Attributes:
        DUELING: whether it has a use for the state value of a dueling network.
    """

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {
        "ensemble": BM, "as_collected": AsCollected, "average_network": AverageNetwork,
    }  # fmt: skip
    MANY_SEEDS: ClassVar[bool] = True
    SEVERAL_PROCESSES: ClassVar[bool] = True
    DUELING: ClassVar[bool] = False

    # External-sampling traversals per player and iteration.
    traversals: int = multiplies(at_least(1))
    # Boards per player and iteration on which all hands are played, exactly (public chance sampling, games with one
    # board only): samples are then as many as of so many traversals, but none is noisy. null: external sampling.
    boards: int | None = added(multiplies(at_least(1, None)))
    # How current strategies are held. listed: in a table over all infosets, evaluated after every fit; asked: by the
    # networks, which are asked about the infosets that come up; null: listed in games of at most 65,536 infosets.
    strategies: str | None = one_of("listed", "asked", default=None)
    # What plays the first betting round: a table of sums beside the networks (only where strategies are asked), or the
    # networks, too; null: the table where strategies are asked.
    opening: str | None = one_of("table", "network", default=None)
    # reservoir: the papers' B^v and B^s; window: the last so many entries; aggregated: sums per infoset, this suite's
    # own option.
    memory: str = one_of("reservoir", "window", "aggregated", default="reservoir")
    # What traversals pass up from a decision of the traverser: the mean of the actions' values under her strategy, or
    # their maximum, an error of OpenSpiel's Deep CFR until October 2020, which D2CFR is compared with.
    passed_up: str = added(one_of("mean", "maximum", default="mean"))
    # Capacity of B^v and of B^s, entries per player.
    value_capacity: int = at_least(1)
    strategy_capacity: int = at_least(1)
    # Loss weight of a sample from iteration t when training in iteration T. uniform: 1, and every iteration counts the
    # same in all else that is summed over them, too, the first betting round's table and B^M: CFR for Linear CFR.
    loss_weight: str = one_of("t/T", "2t/T", "uniform", default="t/T")
    # Divide sampled regrets by the number of legal actions, as the SD-CFR code does.
    divide_by_legal: bool = True
    # Divide sampled regrets by this many chips, or pots.
    regret_unit: float = above(0, 1.0)
    # chips; or pots, all that both players have put in when the decision is made (this suite's own option). An infoset
    # has one pot, so that the strategy matched to its regrets is the same; but errors in large pots, where samples are
    # noisier, count less.
    regrets_in: str = added(one_of("chips", "pots", default="chips"))
    # Strategy where no advantage is positive: the highest advantage (Deep CFR) or uniform (CFR).
    when_no_positive: str = one_of("argmax", "uniform", default="argmax")
    # How value networks are trained, and S-hat; null: S-hat is not trained and B^s not kept (SD-CFR alone).
    value: RegressionConfig = field(default_factory=RegressionConfig)
    average: RegressionConfig | None = field(default_factory=RegressionConfig)

    def lists(self, game: Game) -> bool:
        """Whether strategies in a game are listed."""
        return are_listed(self.strategies, game)

    def tables_opening(self, game: Game) -> bool:
        """Whether the first betting round of a game has a table."""
        return not self.lists(game) if self.opening is None else self.opening == "table"

    @property
    def linear(self) -> bool:
        """Whether an iteration counts with its number (Linear CFR), or all count the same."""
        return self.loss_weight != "uniform"

    @property
    def regressions(self) -> dict[str, RegressionConfig]:
        """How networks are trained, by the key that says so."""
        return {"value": self.value} | ({} if self.average is None else {"average": self.average})

    def process_problems(self, count: int) -> Iterator[str]:
        divided = {"traversals": self.traversals, "value_capacity": self.value_capacity}
        if self.average is not None:
            divided["strategy_capacity"] = self.strategy_capacity
        if self.boards is not None:
            divided["boards"] = self.boards
        for key in (key for key, whole in divided.items() if whole < count):
            yield f"algorithm.{key} is {divided[key]} and trainer.devices {count}; each process needs 1 at least."
        for which, regression in self.regressions.items():
            if regression.batch_size % count:
                yield (
                    f"algorithm.{which}.batch_size is {regression.batch_size} and trainer.devices {count}; each "
                    "process takes an equal part of a minibatch, so it must be a multiple."
                )

    def problems(self, config: Config, game: Any) -> Iterator[str]:
        yield from purpose_problems(config.network, self.name, state_value=self.DUELING)
        for which, regression in self.regressions.items():
            yield from self._regression_problems(which, regression, config)
        for name, readout in self.readouts.items():
            if readout.kind == "average_network" and self.average is None:
                yield (
                    f"algorithm.readouts.{name}.kind is average_network, but algorithm.average is null: S-hat is not "
                    "trained."
                )
        yield from self._strategy_problems(game)
        if self.regrets_in != "chips" and self.DUELING:
            yield (
                f"algorithm.regrets_in is {self.regrets_in}; the algorithm {self.name}, which learns state values "
                "beside advantages, takes chips only."
            )
        if self.boards is not None:
            yield from self._board_problems(config, game)

    def _regression_problems(self, which: str, regression: RegressionConfig, config: Config) -> Iterator[str]:
        key = f"algorithm.{which}"
        if regression.precision != "fp32" and config.device != "cuda":
            yield f"{key}.precision is {regression.precision}, which needs device=cuda; device is {config.device}."
        if regression.random_from is not None and regression.start == "random":
            yield f"{key}.random_from is {regression.random_from}, but {key}.start random from the first: leave it out."
        said = f"{key}.drawn is {regression.drawn}"
        if regression.drawn != "uniformly" and self.memory == "aggregated":
            yield f"{said}; nothing is drawn where algorithm.memory is aggregated: leave it out."
        if regression.drawn != "uniformly" and not self.linear:
            yield f"{said}; all entries weigh the same where algorithm.loss_weight is uniform: leave it out."
        said = f"{key}.focus is {regression.focus}"
        if regression.focus is not None and which == "average":
            yield f"{said}; S-hat's outputs are probabilities: leave it out."
        elif regression.focus is not None and config.network is not None and config.network.architecture == "dnet":
            yield f"{said}; the network dnet learns state values beside advantages, so that it takes null only."

    def _board_problems(self, config: Config, game: Game) -> Iterator[str]:
        said = f"algorithm.boards is {self.boards}"
        if game.exact != "boards":
            yield f"{said}; the game {game.name} has no boards, or several: leave it out."
        elif not self.tables_opening(game):
            yield f"{said}, which takes a table for the first betting round (algorithm.opening=table)."
        if self.DUELING:
            yield f"{said}; the algorithm {self.name}, which learns state values, samples deals: leave it out."
        if self.passed_up != "mean":
            yield f"{said} and algorithm.passed_up {self.passed_up}; samples of boards are of mean only."
        if config.device != "cpu":
            yield f"{said}, which takes device=cpu; device is {config.device}."

    def _strategy_problems(self, game: Game) -> Iterator[str]:
        if self.lists(game):
            yield from self._problems_of_listed(game)
            return
        if self.memory == "aggregated":
            yield (
                f"algorithm.memory is {self.memory}; it sums per infoset, but the strategies of the game {game.name} "
                "are asked, not listed: use reservoir or window."
            )
        if self.tables_opening(game) and game.tree.rounds == 1:
            yield (
                f"algorithm.opening is table where strategies are asked; the game {game.name} has one betting "
                "round, which would leave nothing to networks: use network."
            )

    def _problems_of_listed(self, game: Game) -> Iterator[str]:
        yield from listing_problems(self.strategies, game)
        if self.opening == "table":
            yield (
                f"algorithm.opening is table; the strategies of the game {game.name} are listed, which takes network "
                "only (or algorithm.strategies=asked)."
            )
        for which, regression in self.regressions.items():
            if regression.precision != "fp32":
                yield (
                    f"algorithm.{which}.precision is {regression.precision}; the strategies of the game {game.name} "
                    "are listed, which takes fp32 only."
                )

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        yield "algorithm.traversals", float(BYTES_PER_DEAL * self.traversals)
        if self.memory != "aggregated":
            entry = entry_bytes(game.num_actions)
            yield "algorithm.value_capacity", 2.0 * entry * self.value_capacity
            if self.average is not None:
                yield "algorithm.strategy_capacity", 2.0 * entry * self.strategy_capacity
            for key, regression in self.regressions.items():
                yield f"algorithm.{key}.batch_size", float(entry * regression.batch_size)
        yield from network_bytes(config.network, 2 if self.average is None else 4)

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        assert config.network is not None
        value, average = network_sizes(config.network, game)
        trained = 0 if self.average is None else 2
        openings = 0.0
        if self.tables_opening(game):
            openings = 8.0 * game.num_actions * sum(opening_infosets(game, player) for player in range(2))
        # Tables of the first betting round have regrets and sums; else the strategies themselves are in a table.
        strategies = 2 * openings if not self.lists(game) else 4.0 * game.infosets * game.num_actions
        return Leaves(
            snapshot=trained * average.bytes + (openings if trained else 0.0),
            row=2 * value.bytes + openings,
            # Value networks with Adam's two moments.
            checkpoint=2 * 3 * value.bytes + trained * average.bytes + strategies + self._memory_bytes(config, game),
            # A network's, its optimizer's; what its memory holds; and an opening's.
            tensors=2 * (value.tensors + 3) + trained * average.tensors + 4 * 4 + 4,
            epochs=self.iterations,
        )

    def _memory_bytes(self, config: Config, game: Game) -> float:
        """What all memories hold at the most: as much as they can, or as is collected in all iterations."""
        assert config.network is not None
        state_value = config.network.architecture == "dnet"
        bytes_held = 0.0
        for player, part in enumerate(game.player_slice):
            infosets, columns = part.stop - part.start, game.num_actions + state_value
            if self.memory == "aggregated":
                held = [aggregated_bytes(columns, infosets), aggregated_bytes(game.num_actions, infosets)]
            else:
                own, others = most_met(game, player).own, most_met(game, 1 - player).others
                entries = self._entries(self.value_capacity, own), self._entries(self.strategy_capacity, others)
                each = entry_bytes(columns, infosets), entry_bytes(game.num_actions, infosets)
                held = [number * size for number, size in zip(entries, each, strict=True)]
            bytes_held += sum(held if self.average is not None else held[:1])
        return bytes_held

    def _entries(self, capacity: int, met: int) -> int:
        """In a memory at the most, if a traversal meets so many of the player's infosets at the most."""
        # Of boards, at most one more comes of each part of them, where their numbers are not whole.
        return min(capacity, self.iterations * (self.traversals * met + (self.boards or 0)))

    def work(self, iterations: int) -> float:
        """Value networks' fits, which may grow, are nearly all of it."""
        return float(self.value.steps_until(iterations))

    def build(self, game: Game, config: Config) -> Training:
        assert config.network is not None
        return DeepCFR(game, self, config.network, config.seed)

    def build_rank(self, game: Game, config: Config, ranks: Ranks) -> Training:
        if ranks.count == 1:
            return self.build(game, config)

        def part(regression: RegressionConfig) -> RegressionConfig:
            return replace(regression, batch_size=ranks.share(regression.batch_size))

        own = replace(
            self,
            traversals=ranks.share(self.traversals),
            boards=None if self.boards is None else ranks.share(self.boards),
            value_capacity=ranks.share(self.value_capacity),
            strategy_capacity=ranks.share(self.strategy_capacity),
            value=part(self.value),
            average=None if self.average is None else part(self.average),
        )
        training = own.build(game, config)
        assert type(training) is DeepCFR  # What subclasses add knows of one process.
        training.ranks = ranks
        if ranks.rank:
            training.history = {}  # The first one's is stored.
        return training

    def trains_together(self, config: Config) -> bool:
        return self.MANY_SEEDS and not self.lists(self.load(config.game))

    def together(self, trainings: list[Any]) -> Training:
        from repro.algorithms.replicates import Replicates  # noqa: PLC0415  (they are made of what is below)

        first: DeepCFR = trainings[0]
        if not self.MANY_SEEDS:
            # Batched runs, which one seed on a GPU is, too, do not know what subclasses add.
            return super().together(trainings)
        if not self.lists(first.game) and (len(trainings) > 1 or first.game.device.type == "cuda"):
            return Replicates(trainings)
        assert len(trainings) == 1, "planning refuses several"
        return first


register_algorithm("deep_cfr", DeepCFRConfig)


@dataclass(frozen=True)
class Learner:
    """A network and what trains it."""

    network: nn.Module
    optimizer: FlatAdam
    memory: Memory
    regression: RegressionConfig


class DeepCFR(Algorithm):
    """Deep CFR and SD-CFR.

    Args:
        game: the game; its tensors decide the device.
        algorithm: hyperparameters.
        network: architecture of value and average networks.
        seed: names all random draws of the run.

    Attributes:
        strategies: the current strategies of both players.
        history: B^M: `value`, the value networks' parameters, flat; `opening`, `[infosets, actions]` float64, the
            strategy in the first betting round, where that has a table.
        average_networks: S-hat of both players; none where it is not trained.
        policy_loss: of S-hat's last training, mean over the players.
        ranks: the processes of the training, of which this is one; `algorithm` has its share.
    """

    algorithm: DeepCFRConfig

    def __init__(self, game: Game, algorithm: DeepCFRConfig, network: NetworkConfig, seed: int) -> None:
        super().__init__(game, algorithm, seed)
        self.algorithm, self.network = algorithm, network
        self.ranks = ALONE
        self.engine = SamplingEngine(game)
        self.board_engine = None if algorithm.boards is None else PublicChanceSampling(game)
        self.strategies = self._new_strategies()
        self.value_networks = nn.ModuleList(self._new_network("value", 0, p) for p in range(2))
        averages = 0 if algorithm.average is None else 2
        self.average_networks = nn.ModuleList(self._new_network("average", 0, p) for p in range(averages))
        self._adams = {
            "value": [self._adam(n, algorithm.value) for n in self.value_networks],
            "average": [self._adam(n, algorithm.average) for n in self.average_networks],
        }
        self.value_memories = [self._new_memory("value", p, self.value_columns) for p in range(2)]
        self.strategy_memories = [self._new_memory("average", p, game.num_actions) for p in range(averages)]
        self.policy_loss = 0.0
        self.history = {name: [History(), History()] for name in self.history_names()}

    # -- parts ---------------------------------------------------------------------------------------------------

    def _new_strategies(self) -> Strategies:
        game, algorithm = self.game, self.algorithm
        if algorithm.lists(game):
            return Listed(game, algorithm.when_no_positive)
        return Asked(game, algorithm.when_no_positive, algorithm.tables_opening(game))

    def history_names(self) -> list[str]:
        """The names of what B^M holds of every iteration."""
        return ["value", "opening"] if self.strategies.openings else ["value"]

    def architecture(self, which: str) -> Network:
        """A fresh `value` or `average` network."""
        make = value_network if which == "value" else average_network
        return make(self.network, self.strategies.columns, self.game.num_actions)

    def _new_network(self, which: str, iteration: int, player: int) -> Network:
        with initialisation(self.seed, f"initial {which}", iteration, player):
            built = self.architecture(which)
        return built.to(self.game.device)

    def _adam(self, network: nn.Module, regression: RegressionConfig | None) -> FlatAdam:
        assert regression is not None
        return FlatAdam(network, regression.learning_rate, regression.clip_norm, regression.averaging, regression.muon)

    @property
    def value_columns(self) -> int:
        """Numbers that a value network is trained on per infoset."""
        return self.game.num_actions

    def _new_memory(self, which: str, player: int, columns: int) -> Memory:
        """What the player's `value` or `average` network is fitted to."""
        algorithm, part = self.algorithm, self.game.player_slice[player]
        shape = (part.start, part.stop - part.start, columns, self.game.device)
        if algorithm.memory == "aggregated":
            return Aggregated(*shape)
        kind = Window if algorithm.memory == "window" else Reservoir
        capacity = algorithm.value_capacity if which == "value" else algorithm.strategy_capacity
        return kind(capacity, *shape, by_weight=algorithm.regressions[which].drawn == "by_weight")

    def optimizers(self) -> list[FlatAdam]:
        return self._adams["value"]

    # -- one iteration -------------------------------------------------------------------------------------------

    def draws(self, purpose: str, player: int = 0) -> torch.Generator:
        return super().draws(self.ranks.stream(purpose), player)

    def advance(self) -> dict[str, float]:
        return self.measurements([self._update(player) for player in range(2)])

    def measurements(self, losses: Sequence[float]) -> dict[str, float]:
        """Of an iteration in which the value networks' losses were these."""
        return {
            "loss/value": sum(losses) / 2,
            "memory/value": float(self.ranks.total(sum(m.size for m in self.value_memories))),
            "memory/strategy": float(self.ranks.total(sum(m.size for m in self.strategy_memories))),
        }

    def weight_of_samples(self, which: str) -> int:
        """What this iteration's samples for `value` or `average` networks count beside those of others: its number, or
        all 1."""
        del which
        return self.iteration if self.algorithm.linear else 1

    def _update(self, player: int) -> float:
        """Collect, fit, store: player's half of an iteration. Returns the value loss."""
        self.collect(player)
        loss = self._fit("value", player, self._counted_step(player))
        self.renew_strategy(player)
        return loss

    def rectification(self, player: int) -> Rectify | None:
        """What is done to regrets, in this player's half of an iteration, before strategies are matched to them."""
        del player
        return None

    def current_policy(self, player: int = 0) -> Policy:
        """The strategies of both players that this player's traversals meet."""
        return self.strategies.policy(self.value_networks, self.rectification(player))

    def collect(self, player: int) -> Traversals:
        """Traverse, and store the samples."""
        draw, policy = self.draws("traversals", player), self.current_policy(player)
        traversals = self._traverse(policy, player, draw)
        targets = InfosetSamples(traversals.advantages.infosets, self.value_targets(traversals, policy))
        self._remember(player, targets, traversals.opponent_strategies)
        self.nodes_touched += self.ranks.total(traversals.nodes_touched)
        return traversals

    def _traverse(self, policy: Policy, player: int, draw: torch.Generator) -> Traversals:
        algorithm = self.algorithm
        if self.board_engine is None:
            maximum = algorithm.passed_up == "maximum"
            return self.engine.external_sampling(policy, player, algorithm.traversals, draw, maximum)
        assert algorithm.boards is not None
        return self.board_engine.traverse(policy, player, algorithm.traversals, algorithm.boards, draw)

    def value_targets(self, traversals: Traversals, policy: Policy) -> Tensor:
        """`[n, value_columns]` what the value network learns of each visited infoset.

        Args:
            policy: the strategies that the traversals met.
        """
        del policy
        return self.as_learned(traversals.advantages.infosets, traversals.advantages.targets)

    def as_learned(self, infosets: Tensor, regrets: Tensor) -> Tensor:
        """Regrets in chips, `[n, actions]`, in what value networks learn them in."""
        regrets = regrets / self.algorithm.regret_unit
        if self.algorithm.regrets_in == "pots":
            regrets = regrets / self.game.pots_at(infosets)[:, None].to(regrets.dtype)
        if self.algorithm.divide_by_legal:
            regrets = regrets / self.game.legal_at(infosets).sum(1, keepdim=True)
        return regrets

    def _remember(self, player: int, regrets: InfosetSamples, strategies: InfosetSamples) -> None:
        """Store what the player's traversals collected: her regrets and the opponent's strategies."""
        keep, opponent, counts = self.draws("reservoir", player), 1 - player, self.weight_of_samples("value")
        regrets = self.strategies.set_apart(player, regrets, "regrets", counts, self.ranks)
        self.value_memories[player].add(regrets, counts, keep)
        if self.strategy_memories:
            counts = self.weight_of_samples("average")
            strategies = self.strategies.set_apart(opponent, strategies, "sums", counts, self.ranks)
            self.strategy_memories[opponent].add(strategies, counts, keep)

    def renew_strategy(self, player: int) -> None:
        """Take the player's newly trained value network for the current strategy, and add it to B^M."""
        self.strategies.renew(player, self.value_networks[player], self.iteration, self.rectification(player))
        if "value" in self.history:
            self.history["value"][player].append(self._adams["value"][player].flat)
        if "opening" in self.history:
            self.history["opening"][player].append(self.strategies.opening_strategies[player])

    # -- training of networks ------------------------------------------------------------------------------------

    def learner(self, which: str, player: int) -> Learner:
        """The player's `value` or `average` network, and what belongs to its training."""
        is_value = which == "value"
        return Learner(
            (self.value_networks if is_value else self.average_networks)[player],
            self._adams[which][player],
            (self.value_memories if is_value else self.strategy_memories)[player],
            self.algorithm.regressions[which],
        )

    def begin_fit(self, which: str, player: int, merged: bool = True) -> Iterator[Minibatch]:
        """Put the network where its fit starts; the fit's minibatches, `merged` as a memory's are.

        They are drawn with replacement, so they may be of more rows than the memory has.

        Raises:
            ReproError: it has none.
        """
        learner = self.learner(which, player)
        stand_for = self.ranks.each(learner.memory.stands_for)
        if not all(stand_for):
            traversals = self.ranks.total(self.algorithm.traversals)
            raise ReproError(
                f"algorithm.traversals is {traversals}, and by iteration {self.iteration} they met no "
                f"decision for the {which} network of player {player} to learn from: raise it."
            )
        if learner.regression.starts_at_random(self.iteration):
            fresh = self._new_network(which, self.iteration, player)
            learner.network.load_state_dict(fresh.state_dict())
        draw = self.draws(f"minibatches {which}", player)
        scale = 2.0 if self.algorithm.loss_weight == "2t/T" else 1.0
        scale *= self.ranks.count * learner.memory.stands_for / sum(stand_for)
        steps, rows = learner.regression.steps_at(self.iteration), learner.regression.batch_size
        return learner.memory.minibatches(steps, rows, self.weight_of_samples(which), scale, draw, merged)

    @contextmanager
    def explaining_divergence(self, which: str, player: int) -> Iterator[None]:
        """A fit that diverges within it is an error that names the key to change."""
        try:
            yield
        except FloatingPointError as error:
            rate = self.algorithm.regressions[which].learning_rate
            raise ReproError(
                f"the {which} network of player {player} diverged in iteration {self.iteration}: {error}; "
                f"algorithm.{which}.learning_rate is {rate}, try a lower one."
            ) from error

    def _fit(self, which: str, player: int, last_step: Any = None) -> float:
        batches, learner = self.begin_fit(which, player), self.learner(which, player)
        steps, schedule = learner.regression.steps_at(self.iteration), learner.regression.schedule
        with self.explaining_divergence(which, player):
            return self.strategies.fit_to(
                learner.network, learner.optimizer, batches, player, steps=steps, schedule=schedule,
                last_step=last_step, ranks=self.ranks, focus=learner.regression.focus,
            )  # fmt: skip

    def _counted_step(self, player: int) -> Any:
        """The fit's last optimiser step, taken so that Lightning's `global_step` counts fitted networks."""
        return self.counted[player] if self.counted else None

    def train_average_network(self, player: int) -> float:
        """Train the player's S-hat on B^s as it stands; returns the training loss.

        The draws are S-hat's own, so that leaving more or fewer snapshots does not change what is learned.
        """
        return self._fit("average", player)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def prepare_snapshot(self) -> dict[str, float]:
        if not self.average_networks:
            return {}
        return self.averaged([self.train_average_network(player) for player in range(2)])

    def averaged(self, losses: Sequence[float]) -> dict[str, float]:
        """Note that S-hat was trained, with these losses; returns the measurement."""
        self.policy_loss = sum(losses) / 2
        return {"loss/policy": self.policy_loss}

    def state(self) -> dict[str, Any]:
        """What `AverageNetwork` reads: S-hat, its average of the first betting round, and the loss of its training."""
        if not self.average_networks:
            return {}
        averages = [{k: v.detach().cpu().clone() for k, v in n.state_dict().items()} for n in self.average_networks]
        state = {"average": averages, "loss/policy": self.policy_loss}
        if self.strategies.openings:
            state["average_opening"] = [opening.average().cpu() for opening in self.strategies.openings]
        return state

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        shared = {"strategies": self.strategies.progress(), "policy_loss": self.policy_loss}
        return shared | (self._memories() if self.ranks.count == 1 else {})

    def restore(self, saved: dict[str, Any]) -> None:
        self.strategies.restore(saved["strategies"])
        self.policy_loss = saved["policy_loss"]
        if self.ranks.count == 1:
            self.restore_own(saved)

    def resume(self, state: dict[str, Any]) -> None:
        super().resume({**state, "history": {}} if self.ranks.rank else state)

    def own_progress(self) -> dict[str, Any]:
        return {} if self.ranks.count == 1 else self._memories()

    def _memories(self) -> dict[str, Any]:
        return {
            "value_memories": [m.state_dict() for m in self.value_memories],
            "strategy_memories": [m.state_dict() for m in self.strategy_memories],
        }

    def restore_own(self, saved: dict[str, Any]) -> None:
        for memories, states in (
            (self.value_memories, saved["value_memories"]), (self.strategy_memories, saved["strategy_memories"])
        ):  # fmt: skip
            for memory, state in zip(memories, states, strict=True):
                memory.load_state_dict(state)
