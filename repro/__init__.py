"""Reproduction suite for neural counterfactual regret minimisation."""

import os

# MLflow reports how it is used to its makers, unless this is set before it is imported. A user's own setting counts.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# A command ends with one link; with a server, MLflow would print one for each of its runs.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
