"""All algorithms on whole games: who imports this lets Hydra know their schemas."""

from repro.algorithms import d2cfr, deep_cfr, guided, kuhn_post, mccfr, nfsp, tabular

__all__ = ["d2cfr", "deep_cfr", "guided", "kuhn_post", "mccfr", "nfsp", "tabular"]
