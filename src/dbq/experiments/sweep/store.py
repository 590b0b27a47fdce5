"""The store of a sweep: an Optuna storage in which claiming a trial is atomic."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from dbq.errors import TrainingError, first_line
from dbq.support.atomic import write_atomically

SQLITE_PATIENCE = 60  # seconds to wait for another process's transaction


def default_store(out: Path) -> str:
    """SQLite in the directory of the sweep: enough for the workers of one machine."""
    return f"sqlite:///{out.absolute() / 'sweep.db'}"


def study_name(out: Path) -> str:
    """What the sweep in a directory is called in a store that others may use, too."""
    path = out / "study.txt"
    if not path.exists():
        write_atomically(path, f"dbq sweep {uuid.uuid4().hex}\n".encode())
    return path.read_text().strip()


def open_store(url: str, beat_every: int, grace: int) -> RDBStorage:
    """Connect, and make the tables of a store that has none."""
    is_sqlite = url.startswith("sqlite")
    # A connection may be idle for as long as a run takes, and servers close such ones.
    options: dict[str, Any] = {"pool_pre_ping": True}
    if is_sqlite:
        options = {"connect_args": {"timeout": SQLITE_PATIENCE}}
    try:
        storage = RDBStorage(url, options, heartbeat_interval=beat_every, grace_period=grace)
    except (SQLAlchemyError, ImportError, StorageInternalError, RuntimeError) as error:
        scheme = url.partition(":")[0]  # the rest may have a password in it
        raise TrainingError(f"cannot use the {scheme} store: {first_line(error)}") from None
    if is_sqlite:
        _serialise(storage)
    return storage


def _serialise(storage: RDBStorage) -> None:
    """One SQLite transaction after the other.

    Optuna claims a trial by looking at it and then changing it, under SELECT FOR UPDATE, which SQLite
    does not have: two processes may both find it waiting. A transaction that has the right to write
    from its beginning excludes that.
    """

    @sqlalchemy.event.listens_for(storage.engine, "connect")
    def leave_transactions_to_us(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(storage.engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    storage.engine.dispose()  # connections made before
