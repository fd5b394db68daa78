"""The error classes that a user is meant to read, and telling any other error as one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ReproError(Exception):
    """A fault in what the user asked for, told in one sentence: the key, its value and what is allowed.

    Entry points print the message alone and exit with status 2; every other exception is a fault of ours and
    keeps its traceback.
    """


class ModuleError(ReproError):
    """A module that a configuration names cannot be imported."""


class StorageError(ReproError):
    """A disk or an MLflow store that does not work now; a run that meets it is interrupted, and can be continued."""


class StoppedEarlyError(ReproError):
    """A training that was stopped on purpose before its end, such as a pruned trial; it can be continued."""


@contextmanager
def told_of(name: str) -> Iterator[None]:
    """Tell faults within as those of an argument.

    Raises:
        ReproError: there was one.
    """
    try:
        yield
    except ReproError as error:
        raise ReproError(f"{name}: {error}") from error


@contextmanager
def told_as(
    sentence: Callable[[Exception], str], passing: tuple[type[Exception], ...] = (ReproError,)
) -> Iterator[None]:
    """Tell whatever goes wrong within in one sentence: a damaged file fails in as many ways as there are bytes.

    Args:
        sentence: made of the error.
        passing: errors that are told well already.

    Raises:
        ReproError: something went wrong.
    """
    try:
        yield
    except passing:
        raise
    except Exception as error:
        raise ReproError(sentence(error)) from error
