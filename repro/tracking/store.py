"""The MLflow store: opening it, asking it with patience, its experiments, and where their files are.

The runs in it are in `repro.tracking.mlflow_runs`.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Experiment, Param
from mlflow.exceptions import MlflowException
from mlflow.utils.file_utils import local_file_uri_to_path
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, make_url

from repro.common import durable
from repro.common.errors import ReproError, StorageError
from repro.common.faults import causes, disk_fault, disk_faults_told
from repro.common.stopping import is_stopping
from repro.config.schema import LATER
from repro.tracking.folders import DATABASE

PATIENCE_SECONDS = 300.0
"""How long a database is waited for that another process has locked."""
_PATIENCE_WHEN_STOPPING_SECONDS = 5.0
_LOOK_EVERY_SECONDS = 0.5
_SQLITE, _SQLITE_DRIVER = "sqlite:///", "sqlite+pysqlite:///"
_SQLITE_HEADER = b"SQLite format 3\0"
_FIRST_REQUEST = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "4"}
"""MLflow's own settings, for the first request to a server; a store that answered has MLflow's patience."""


def default_uri(output_dir: Path) -> str:
    """The SQLite file in the output folder, by absolute path."""
    return sqlite_uri(output_dir.resolve() / DATABASE)


def sqlite_uri(path: Path) -> str:
    """What names an SQLite file, whatever characters its absolute path has."""
    plain = f"{_SQLITE}{path}"
    escaped = URL.create("sqlite", database=str(path)).render_as_string()
    # What looks escaped MLflow would take for the name of a folder, and make that; of a named driver it does not.
    return plain if escaped == plain else escaped.replace(_SQLITE, _SQLITE_DRIVER, 1)


def _sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite store; None for other stores."""
    if not uri.startswith((_SQLITE, _SQLITE_DRIVER)):
        return None
    return Path(make_url(uri).database or "")


Answer = TypeVar("Answer")


class Store:
    """An MLflow store: the methods of its client, which wait while another process has locked the database.

    Every method raises `StorageError` if the store does not work now, and `MlflowException` if what it was asked is at
    fault.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._patience = PATIENCE_SECONDS
        self._client = self._patiently(MlflowClient, uri)
        self._patiently(self._client.search_experiments, max_results=1)

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, getattr(self._client, name))

    def _ask(self, method: Callable[..., Answer], *arguments: Any, **named: Any) -> Answer:
        try:
            return self._patiently(method, *arguments, **named)
        except MlflowException as error:
            if error.error_code in ("TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR"):
                raise StorageError(f"the MLflow store {self.uri} does not work ({_reason(error)}).") from error
            raise

    def _patiently(self, method: Callable[..., Answer], *arguments: Any, **named: Any) -> Answer:
        longest = _PATIENCE_WHEN_STOPPING_SECONDS if is_stopping() else math.inf
        try:
            return patiently(self.uri, min(self._patience, longest), method, *arguments, **named)
        except StorageError:
            self._patience = 0.0  # Whatever is asked after a fault is to tell of it.
            raise


def patiently(uri: str, seconds: float, method: Callable[..., Answer], *arguments: Any, **named: Any) -> Answer:
    """Call a method that uses a database, again and again while another process has locked that.

    Raises:
        StorageError: the database or a disk does not work, or it is still locked after so many seconds.
    """
    began, waits = time.monotonic(), False
    while True:
        try:
            return method(*arguments, **named)
        except Exception as error:
            if not _is_locked(error):
                fault = _sqlite_fault(uri, error) or disk_fault(error)
                if fault is None:
                    raise
                raise fault from error
            if time.monotonic() - began > seconds:
                raise StorageError(
                    f"the MLflow database {_sqlite_file(uri)} has been locked by another process for {seconds:.0f} "
                    "seconds."
                ) from error
        if not waits:
            print(
                f"waiting for the MLflow database {_sqlite_file(uri)}, which another process has locked "
                f"(at most {seconds:.0f} seconds)",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            waits = True
        time.sleep(_LOOK_EVERY_SECONDS)


def _is_locked(error: BaseException) -> bool:
    return any(_code(cause) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) for cause in causes(error))


def _sqlite_fault(uri: str, error: BaseException) -> StorageError | None:
    """What is wrong with a database; None if it is not the database."""
    for cause in causes(error):
        # Of its subclasses, the other ones say that what was asked is wrong.
        if isinstance(cause, sqlite3.OperationalError) or type(cause) is sqlite3.DatabaseError:
            return StorageError(f"the MLflow database {_sqlite_file(uri)} does not work ({cause}).")
    return None


def _code(error: BaseException) -> int | None:
    """SQLite's primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _reason(error: BaseException) -> str:
    """What a person needs to know of a fault: of a server that was not reached, why, without the layers above that."""
    first, told = causes(error)[0], str(error)
    if isinstance(first, OSError) and first.filename is None:
        told = first.strerror or str(first)
    return (told.splitlines() or [type(error).__name__])[0]


def open_store(uri: str, *, tries_writing: bool = False) -> Store:
    """Connect, creating an SQLite database where there is none.

    Args:
        tries_writing: whether an SQLite database that cannot be written is to show now: when a command begins.

    Raises:
        ReproError: the file is not an MLflow database, or the store cannot be reached.
        StorageError: it is locked by another process, or cannot be written.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It prints a traceback of what is told in a sentence.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    if uri == LATER:
        raise ReproError(f"tracking_uri is {LATER}; this needs a store: leave it out, or name one.")
    path = _sqlite_file(uri)
    if path is not None:
        if not path.is_absolute():
            raise ReproError(f"tracking_uri is {uri!r}; an SQLite file needs an absolute path (four slashes).")
        with disk_faults_told():
            if _is_there(path):
                _check_sqlite(uri, path, tries_writing)
            else:
                _create_sqlite(path)
    return _connect(uri)


def _is_there(path: Path) -> bool:
    """Whether there is a database. SQLite leaves an empty file in place of one that was removed while in use."""
    return path.exists() and (path.is_dir() or path.stat().st_size > 0)


def _connect(uri: str) -> Store:
    try:
        with _impatient():
            return Store(uri)
    except ReproError:
        raise
    except Exception as error:  # MLflow lets its back ends' many exception types through.
        raise ReproError(
            f"tracking_uri is {uri!r}; it must name an MLflow store that can be opened ({_reason(error)})."
        ) from error


@contextmanager
def _impatient() -> Iterator[None]:
    """Let MLflow give up soon on a server that does not answer, but for what the user says of that."""
    unset = {name: value for name, value in _FIRST_REQUEST.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


def _create_sqlite(path: Path) -> None:
    """Make and migrate the database under another name, then rename it.

    Killed on the way, it leaves nothing that a later command trips over; of several processes one does it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_there(path):
            return
        beside = path.with_name(f"{path.name}.new")
        for left_over in path.parent.glob(f"{beside.name}*"):
            left_over.unlink()
        with _not_waiting_for_the_disk(beside):
            _connect(sqlite_uri(beside))
        # MLflow has imported it by now. It keeps engines for good, and this one has the file open that is renamed.
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415

        SqlAlchemyStore._engine_map.pop(sqlite_uri(beside)).dispose()
        durable.wait_for_disk(beside)
        beside.rename(path)


@contextmanager
def _not_waiting_for_the_disk(path: Path) -> Iterator[None]:
    """Let MLflow migrate a new SQLite database, which takes dozens of commits, without a disk's delay in each."""

    def relax(connection: Any, _: object) -> None:
        # Other threads may connect to other databases meanwhile.
        if isinstance(connection, sqlite3.Connection) and path.resolve() in _files(connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        event.remove(Engine, "connect", relax)


def _files(connection: sqlite3.Connection) -> set[Path]:
    """Those of the databases of a connection."""
    return {Path(file) for _, _, file in connection.execute("PRAGMA database_list")}


def _check_sqlite(uri: str, path: Path, tries_writing: bool) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(len(_SQLITE_HEADER))
    except IsADirectoryError as error:
        raise ReproError(f"tracking_uri is {uri!r}; it must be an MLflow database, and is a folder.") from error
    if header != _SQLITE_HEADER:
        raise ReproError(f"tracking_uri is {uri!r}; the file there must be an MLflow database.")
    if "experiments" not in patiently(uri, PATIENCE_SECONDS, _tables, path, tries_writing):
        raise ReproError(f"tracking_uri is {uri!r}; the file there is a database, but not an MLflow one.")


def _tables(path: Path, tries_writing: bool) -> set[str]:
    """Names of a database's tables.

    Opened for writing, because SQLite may have to roll back what a killed process left in the middle of a commit.
    """
    with closing(sqlite3.connect(path, timeout=_LOOK_EVERY_SECONDS)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tries_writing:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE write_test (x)")
            connection.rollback()
    return tables


def experiment_id(client: Store, name: str, artifacts: Path) -> str:
    """The id of an experiment, made if there is none; its files go to `artifacts`.

    Raises:
        ReproError: the experiment was deleted in the UI, or its files are not where it says.
    """
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            artifacts.mkdir(parents=True, exist_ok=True)
            return str(client.create_experiment(name, artifact_location=artifacts.resolve().as_uri()))
        except MlflowException:
            # Another process was faster.
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise ReproError(
            f"the MLflow experiment {name!r} was deleted; restore it with `mlflow experiments restore "
            f"--experiment-id {experiment.experiment_id}`, or choose another output_dir."
        )
    _follow_moved_files(client, experiment, artifacts)
    return str(experiment.experiment_id)


def _follow_moved_files(client: Store, experiment: Experiment, artifacts: Path) -> None:
    """Let a database know where its files are when their folder was moved: it holds absolute paths.

    A database that lies beside its files was moved or copied with them. One elsewhere may serve several output folders,
    and stays as it is while the folder that it names exists.
    """
    before, now = str(experiment.artifact_location), artifacts.resolve().as_uri()
    if before == now or not before.startswith("file:"):
        return
    folder = Path(local_file_uri_to_path(before))
    lies_beside = client.uri == default_uri(artifacts.parent)
    if not lies_beside and folder.is_dir():
        return
    database = _sqlite_file(client.uri)
    if database is None:
        raise ReproError(
            f"the files of the MLflow experiment {experiment.name!r} of {client.uri} are in {folder}, which does not "
            f"exist; if it was moved to {artifacts}, make a link there, or choose another tracking_uri."
        )
    if patiently(client.uri, PATIENCE_SECONDS, _move_files, database, before, now):
        print(f"MLflow's files were moved from {folder} to {artifacts}; {database} now says so", file=sys.stderr)


def _move_files(database: Path, before: str, now: str) -> bool:
    """Change where all experiments and runs have their files; whether there was one, or another process was faster."""
    with closing(sqlite3.connect(database, timeout=_LOOK_EVERY_SECONDS)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        moved = connection.execute(
            "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?", (now, before)
        )
        connection.execute(
            "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?) WHERE substr(artifact_uri, 1, ?) = ?",
            (now, len(before) + 1, len(before) + 1, f"{before}/"),
        )
        return moved.rowcount > 0


_LONGEST_VALUE = 500


def as_params(values: Mapping[str, Any]) -> list[Param]:
    """Parameters as MLflow takes them."""
    return [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in values.items()]
