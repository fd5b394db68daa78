"""Reproduction suite for neural counterfactual regret minimisation."""

import os

# MLflow reports how it is used to its makers, unless this is set before it is imported. A user's own setting counts.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
