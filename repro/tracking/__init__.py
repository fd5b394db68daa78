"""What is kept of runs: records, rows, MLflow, checkpoints, progress, provenance."""
