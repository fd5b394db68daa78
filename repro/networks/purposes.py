"""Architectures that are for some algorithms only."""

from __future__ import annotations

from collections.abc import Iterator

from repro.config.schema import NetworkConfig


def purpose_problems(
    network: NetworkConfig | None, algorithm: str, *, subgame_values: bool = False, state_value: bool = False
) -> Iterator[str]:
    """What is wrong with an architecture for an algorithm, which may have none.

    Args:
        algorithm: its name.
        subgame_values: whether networks predict the values of subgames, for which `prelu` alone is.
        state_value: whether the algorithm has use for a state's value, which `dnet` alone has.
    """
    if network is None:
        return
    if (network.architecture == "prelu") != subgame_values:
        yield (
            f"network.architecture is {network.architecture}; prelu is for networks of subgames' values, which take "
            f"nothing else, and the algorithm is {algorithm}."
        )
    if network.architecture == "dnet" and not state_value:
        yield (
            f"network.architecture is dnet, whose state value the algorithm {algorithm} has no use for; only d2cfr "
            "takes it."
        )
