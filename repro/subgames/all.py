"""All algorithms and evaluations about subgames: who imports this lets Hydra know their schemas."""

from repro.subgames import networks, runs

__all__ = ["networks", "runs"]
