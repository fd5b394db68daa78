"""Subgames of Hold'em: solved, stored or fresh; networks of their values, and play with these at the leaves."""
