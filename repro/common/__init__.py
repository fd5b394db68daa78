"""What the rest stands on, and what knows nothing of games: errors in sentences, files that last, signals, seeds."""
