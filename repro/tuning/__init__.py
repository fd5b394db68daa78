"""Tuning hyperparameters: what a study is, its trials in Optuna, the processes that do them, and its page."""
