"""All algorithms and evaluations about subgames: who imports this lets Hydra know their schemas."""

from repro.subgames import networks, play, runs

__all__ = ["networks", "play", "runs"]
