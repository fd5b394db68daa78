"""What the MLflow UI shows of runs: saved views, means over seeds, figures, and what commands leave at their ends."""
