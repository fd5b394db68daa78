"""Files that outlast kills and losses of power, and, of those that can be made again, the damage of a disk.

What can be made again is stored with a *seal*: a second file, with the suffix `.json`, that says what the first one
holds, and its checksum (SHA-256). It is written last. A file without its seal, with that of other contents, or under
the name of another one is never read: it is made again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from repro.common.faults import writing

_BESIDE = "writing"


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write in, which takes the place of `path` when it is whole; if anything fails, nothing is left of it.

    Args:
        sync: wait until it is on the disk, for what must outlast a loss of power.
    """
    beside = written_beside(path)
    with writing(path, beside), beside.open("wb") as file:
        # As long as it is locked, it is being written (`is_abandoned`).
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
        beside.replace(path)
    if sync:
        wait_for_disk(path.parent)


def written_beside(path: Path) -> Path:
    """The file that this process writes before it takes the place of `path`."""
    return path.with_name(f"{path.name}.{_BESIDE}-{socket.gethostname()}-{os.getpid()}")


def is_abandoned(beside: Path) -> bool:
    """Whether a file that was to take another one's place is not being written any more."""
    try:
        with beside.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # It is locked, has its name now, or is another user's.
        return False
    return True


def write(path: Path, content: bytes, sync: bool = True) -> None:
    """Write a file, as `replacing`."""
    with replacing(path, sync) as file:
        file.write(content)


def touch(path: Path) -> None:
    """Make an empty file that outlasts a loss of power, in one step: nothing beside it is renamed."""
    with writing(path):
        path.touch()
        wait_for_disk(path.parent)


def wait_for_disk(path: Path) -> None:
    """Wait until a file's content is on the disk, or a folder is: it is there that a file has its name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such thing.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


# -- what can be made again ------------------------------------------------------------------------------------------


def kept(
    path: Path, holds: Mapping[str, Any], make: Callable[[], bytes], made_by: Callable[[], Mapping[str, Any]] = dict
) -> bytes:
    """The content of a file that can be made again: as it is stored, or, if it is missing or damaged, made now.

    Of several processes that lack it one makes it, and the others wait. What was damaged is told on stderr.

    Args:
        holds: what decides the content, as JSON can hold it.
        made_by: what else the seal says of a file that is made now; asked only then, and never compared.
    """
    content, _ = _sound(path, holds)
    if content is not None:
        return content
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content, damage = _sound(path, holds)
        if content is not None:
            return content
        if damage:
            print(f"warning: {path} {damage}; it is made again.", file=sys.stderr, flush=True)
        for file in (path, _seal(path)):
            # Of processes that were killed: whoever writes here has the lock.
            for left_over in path.parent.glob(f"{escape(file.name)}.{_BESIDE}-*"):
                left_over.unlink()
        content = make()
        write(path, content)
        seal = {"holds": holds, "sha256": hashlib.sha256(content).hexdigest(), **made_by()}
        write(_seal(path), json.dumps(seal).encode())
        return content


def is_kept(path: Path) -> bool:
    """Whether a file that can be made again is or was there, be it damaged."""
    return path.exists() or _seal(path).exists()


def _sound(path: Path, holds: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """The file's content, or None and what is wrong with it; nothing is if it was never there."""
    if not is_kept(path):
        return None, ""
    try:
        content, seal = path.read_bytes(), json.loads(_seal(path).read_bytes())
    except FileNotFoundError as error:
        return None, f"was not finished (there is no {Path(error.filename).name})"
    except (ValueError, RecursionError) as error:
        return None, f"is damaged (its seal cannot be read: {error})"
    if not isinstance(seal, dict) or hashlib.sha256(content).hexdigest() != seal.get("sha256"):
        return None, "is damaged (it has not the checksum that was written with it)"
    # Seals of earlier versions do not say what the file holds.
    if "holds" in seal and seal["holds"] != json.loads(json.dumps(holds)):
        return None, "is the file of something else"
    return content, ""


def _seal(path: Path) -> Path:
    return path.with_suffix(".json")
