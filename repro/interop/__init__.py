"""Strategies to and from other libraries."""
