"""A command's runs: what they need, launched here or on a cluster, with their progress and their report."""
