"""All algorithms and evaluations about subgames: who imports this lets Hydra know their schemas."""

from repro.subgames import labels, networks, play, readings, runs, turn_values

__all__ = ["labels", "networks", "play", "readings", "runs", "turn_values"]
