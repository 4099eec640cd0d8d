"""Writing files so that a reader sees the old content or the new content, never a part."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from cliquewise.errors import SaveError

#: Suffix of temporary files, which begin with a dot and the name of their target.
_SUFFIX = ".tmp"
#: Seconds after which an unlocked temporary file counts as left behind by a killed process. A
#: file is locked right after it is created, so seconds would do.
_STALE_AFTER = 60.0
#: Errors after which a file cannot be renamed over the target, but may be written in place: a
#: mount point, another file system, and a directory in which only existing files are writable.
_IN_PLACE = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)


def replace_file(path: str | Path, content: bytes) -> None:
    """Write a file atomically.

    The content goes to a temporary file in the same directory, which then takes the name.
    Symbolic links are followed, and an existing file keeps its mode. Where the target cannot be
    renamed over, such as a file that is mounted into a container, it is written in place.

    Raises
    ------
    SaveError
        If the target cannot be written; the message says where the content was saved instead.

    Examples
    --------
    >>> import os, tempfile
    >>> target = os.path.join(tempfile.mkdtemp(), "a.txt")
    >>> replace_file(target, b"content")
    >>> open(target, "rb").read()
    b'content'
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a pipe or a device
            target.write_bytes(content)
            return
        remove_stale_files(target)
        try:
            _replace(target, content)
        except OSError as error:
            if error.errno not in _IN_PLACE or not target.is_file():
                raise
            _overwrite(target, content)
    except OSError as error:
        raise SaveError(_rescue(target, content, error), errno=error.errno) from error


def check_target(path: str | Path, what: str) -> None:
    """Raise an error if no file could be written to a path; call it before a long computation.

    Parameters
    ----------
    path : path
    what : str
        The name of the file in the message.

    Raises
    ------
    SaveError

    Examples
    --------
    >>> check_target("no/such/folder/model.cw", "the model")
    Traceback (most recent call last):
    cliquewise.errors.SaveError: no/such/folder/model.cw: the model cannot be written there...
    """
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a directory")
        try:
            # A test by writing, because permissions do not show read-only file systems.
            with tempfile.TemporaryFile(dir=target.parent):
                pass
        except OSError as error:
            if error.errno not in _IN_PLACE or not target.is_file():
                raise
            with open(target, "r+b"):
                pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        number = getattr(error, "errno", None)
        raise SaveError(f"{what} cannot be written there ({reason})", path, number) from None


def remove_stale_files(target: Path) -> None:
    """Delete temporary files that killed processes have left next to a target.

    A process holds a lock on its temporary file, which the operating system releases.
    """
    with suppress(OSError):
        for path in target.parent.glob(f".{_escaped(target.name)}.*{_SUFFIX}"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_AFTER:
                    _delete_unless_locked(path)


def _delete_unless_locked(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        _lock(handle)
        path.unlink()
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock an open file for this process; an OSError if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # on Windows an open file cannot be deleted
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _replace(target: Path, content: bytes) -> None:
    """Write a temporary file and rename it over the target."""
    mode = _mode_of(target)
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}{_SUFFIX}")
    try:
        if not _write_unnamed(temporary, content, mode):
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
            _write(os.open(temporary, flags, 0o600), content, mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _write_unnamed(temporary: Path, content: bytes, mode: int) -> bool:
    """Write a file that has no name until it is complete, so that a kill leaves nothing behind.

    Returns False where the file system does not support this.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        handle = os.open(temporary.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError:
        return False
    other = os.dup(handle)
    try:
        _write(handle, content, mode)
        os.link(f"/proc/self/fd/{other}", temporary, follow_symlinks=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
            raise
        return False
    finally:
        os.close(other)
    return True


def _write(handle: int, content: bytes, mode: int) -> None:
    """Write, synchronize and close a new file, which is locked meanwhile."""
    with os.fdopen(handle, "wb") as file:
        with suppress(OSError):  # file systems without locks
            _lock(file.fileno())
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), mode)


def _overwrite(target: Path, content: bytes) -> None:
    """Write a file in place: not atomic, but possible where renaming is not."""
    with open(target, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _rescue(target: Path, content: bytes, error: OSError) -> str:
    """Save the content elsewhere, and return the message of the error."""
    text = f"{target} could not be written ({error.strerror or error})"
    for folder in (target.parent, Path.cwd(), Path(tempfile.gettempdir())):
        rescued = folder / f"{target.name}.{os.urandom(3).hex()}.saved"
        try:
            handle = os.open(rescued, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            rescued.unlink(missing_ok=True)
            continue
        return f"{text}; the content was saved to {rescued} instead"
    return f"{text}; nor could it be saved elsewhere"


def _mode_of(target: Path) -> int:
    """Return the mode of an existing file, or the one that a new file gets."""
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_directory(folder: Path) -> None:
    """Make a rename durable, where the operating system can."""
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _escaped(name: str) -> str:
    """Return a name in which glob patterns stand for themselves."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
