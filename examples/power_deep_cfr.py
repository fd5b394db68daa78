"""Deep CFR whose S-hat counts samples of iteration t with a power of t, as DCFR [Brown and Sandholm 2019].

An algorithm that is another one but for a key and a method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.config import Config
from repro.config.fields import at_least
from repro.config.schema import register_algorithm
from repro.games import Game


@dataclass
class PowerDeepCFRConfig(DeepCFRConfig):
    """Deep CFR's keys, and one more."""

    # Forms that Deep CFR has and this file does not: several seeds in one training, and several processes.
    MANY_SEEDS: ClassVar[bool] = False
    SEVERAL_PROCESSES: ClassVar[bool] = False

    # What iteration t counts in the average strategy: t to this power; 1 is Deep CFR.
    exponent: int = at_least(0, 2)

    def problems(self, config: Config, game: Game) -> Iterator[str]:
        if self.iterations**self.exponent >= 2**31:
            yield (
                f"algorithm.exponent is {self.exponent} and algorithm.iterations {self.iterations}; what an iteration "
                "counts must be below 2^31."
            )
        yield from super().problems(config, game)

    def build(self, game: Game, config: Config) -> PowerDeepCFR:
        assert config.network is not None
        return PowerDeepCFR(game, self, config.network, config.seed)


class PowerDeepCFR(DeepCFR):
    """Deep CFR, but for what samples for S-hat count."""

    algorithm: PowerDeepCFRConfig

    def weight_of_samples(self, which: str) -> int:
        counts = super().weight_of_samples(which)
        return counts**self.algorithm.exponent if which == "average" else counts


register_algorithm("power_deep_cfr", PowerDeepCFRConfig)
