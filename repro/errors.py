"""The error classes that a user is meant to read."""


class ReproError(Exception):
    """A fault in what the user asked for, told in one sentence: the key, its value and what is allowed.

    Entry points print the message alone and exit with status 2; every other exception is a fault of ours and
    keeps its traceback.
    """


class StorageError(ReproError):
    """A disk or an MLflow store that does not work now; a run that meets it is interrupted, and can be continued."""
