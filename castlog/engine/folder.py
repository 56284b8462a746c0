"""The store's folder as the file system sees it: names, modes, building aside, the data file's own account of itself.

Knows nothing of transactions, and does not import LMDB: it reads the two meta pages by their published layout.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from castlog.errors import Corrupt, Error, Invalid, NotFound, Unavailable

DATA = "data.mdb"
READER_TABLE = "lock.mdb"
WRITE_LOCK = "write.lock"
RUN_LOCK = "runs.lock"
_REBUILD = "rebuild.new"
_EXCHANGING = "exchanging"  # beside the new file, from before it moves until all is done

FOLDER_MODE = 0o700
FILE_MODE = 0o600

# The layout of LMDB data format 1. Do not change: these are LMDB's offsets, not ours.
_META_MAGIC = 0xBEEFC0DE
_META_VERSION = 1
_META_HEAD = struct.Struct("=II")  # at 16: magic, version
_META_HEAD_AT = 16
_PAGE_SIZE = struct.Struct("=I")
_PAGE_SIZE_AT = 40
_META_TAIL = struct.Struct("=QQ")  # at 136: last page, transaction
_META_TAIL_AT = 136
_META_BYTES = _META_TAIL_AT + _META_TAIL.size
_PAGE_SIZES = frozenset(1 << n for n in range(8, 17))

# Locks, or the view of a mapped file, do not hold between machines on these.
_REFUSED_MOUNTS = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "afs", "ncpfs", "fuse.sshfs"))
_NOTED_MOUNTS = {
    "overlay": "the store lies on an overlay file system, where a reader opened before the first write"
    " may go on seeing the lower layer",
    "tmpfs": "the store lies in memory (tmpfs): it is gone after a restart",
    "ramfs": "the store lies in memory (ramfs): it is gone after a restart",
}


# --- finding and making -------------------------------------------------------------------------


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a store's folder; its parent must be there. Raises Invalid for what cannot be a path."""
    name = os.fspath(path)
    if "\0" in name:
        raise Invalid("the path of a store cannot contain a zero byte")
    try:
        target = Path(os.path.realpath(name))
        there = target.parent.is_dir()
        str(target).encode("utf-8")
    except UnicodeEncodeError as error:  # LMDB takes no other.
        raise Invalid(f"the path of a store must be UTF-8, and {name!a} is not") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise Invalid(f"a path of {len(name)} characters is too long for this system") from error
        raise unavailable(Path(name), error.errno or 0) from error
    if not there:
        raise NotFound(f"the folder {target.parent} does not exist", path=str(target))
    return target


def holds_store(target: Path) -> bool:
    """Tell whether `target` is a folder with a data file in it."""
    with explained(target):
        return os.path.lexists(target / DATA)


def require_vacant(target: Path) -> None:
    """Raise Invalid unless `target` is absent or an empty folder."""
    with explained(target):
        try:
            names = os.listdir(target)
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise Invalid(f"{target} is a file, not a folder", path=str(target)) from error
    if names:
        raise Invalid(f"the folder {target} is not empty and holds no store", path=str(target))


def make_aside(target: Path) -> Path:
    """Create a private folder beside `target`, with an empty data file, a lock file and a `.gitignore` in it."""
    aside = target.with_name(f".castlog-{os.urandom(8).hex()}.new")
    try:
        with explained(target):
            os.mkdir(aside, FOLDER_MODE)
            os.chmod(aside, FOLDER_MODE)
            for name, content in ((DATA, b""), (WRITE_LOCK, b""), (".gitignore", b"*\n")):
                _write_file(aside / name, content)
    except BaseException:
        discard(aside)
        raise
    return aside


def make_rebuild(target: Path) -> Path:
    """Create the folder inside a store in which a new data file is built; what a killed builder left goes."""
    with explained(target):
        aside = target / _REBUILD
        discard(aside)
        os.mkdir(aside, FOLDER_MODE)
        os.chmod(aside, FOLDER_MODE)
        _write_file(aside / DATA, b"")
        return aside


def exchange(aside: Path, target: Path) -> None:
    """Put the data file built in `aside` in the place of the store's own, durably.

    The reader table belongs to the old file and goes with it: LMDB takes the number of the newest commit from there.
    It goes second: an old file with a new table would be used, a new file with an old table is refused. Whoever opens
    the store next finds by `half_exchanged` that somebody was killed in between, and calls `finish_exchange`.
    """
    with explained(target):
        sync(aside / DATA)
        _write_file(aside / _EXCHANGING, b"")
        os.replace(aside / DATA, target / DATA)
        _drop_reader_table(target)


def half_exchanged(target: Path) -> bool:
    """Return whether the data file may have been exchanged without its reader table. The caller keeps others off."""
    aside = target / _REBUILD
    return (aside / _EXCHANGING).exists() and not (aside / DATA).exists()


def finish_exchange(target: Path) -> None:
    """Do what was left to do of an exchange; the same locks are needed."""
    with explained(target):
        _drop_reader_table(target)
    discard(target / _REBUILD)


def _drop_reader_table(target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target / READER_TABLE)
    sync(target)


def put_in_place(aside: Path, target: Path) -> bool:
    """Make `aside` durable and rename it to `target`; return False when somebody else's store is there already."""
    with explained(target):
        for name in os.listdir(aside):
            sync(aside / name)
        sync(aside)
        try:
            os.rename(aside, target)
        except OSError as error:
            if holds_store(target):
                return False
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                require_vacant(target)
            if error.errno == errno.EBUSY:
                raise Invalid(
                    f"{target} is a mount point and cannot be replaced: name a folder inside it",
                    path=str(target),
                ) from error
            raise
        sync(target.parent)
        return True


def discard(aside: Path) -> None:
    """Remove what `make_aside` or `make_rebuild` made, if it is still there."""
    # Imported where it is needed: it brings along three compressors.
    import shutil

    shutil.rmtree(aside, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush one file or folder to the device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_private(path: Path) -> None:
    """Give a file its mode whatever the umask was. Never opens it: closing a lock file would drop its locks."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if os.stat(path).st_mode & 0o777 != FILE_MODE:
            os.chmod(path, FILE_MODE)


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


# --- the data file ------------------------------------------------------------------------------


def committed(path: Path) -> tuple[int, int]:
    """Return the newest commit's number and the bytes it says the file has. Raise Corrupt when it is no data file."""
    with explained(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:
                raise Corrupt(f"{path} is empty", path=str(path), size=0)
            head = os.pread(descriptor, _META_BYTES, 0)
            page_size = _page_size(path, head)
            metas = (head, os.pread(descriptor, _META_BYTES, page_size))
        finally:
            os.close(descriptor)
    commits = []
    for meta in metas:
        if _page_size(path, meta) != page_size:
            raise Corrupt(f"the meta pages of {path} contradict each other", path=str(path))
        last_page, number = _META_TAIL.unpack_from(meta, _META_TAIL_AT)
        commits.append((number, (last_page + 1) * page_size))
    return max(commits)


def allocate(path: Path, size: int) -> None:
    """Make a file `size` bytes long if it is shorter. Never cuts and never overwrites, whoever else writes to it."""
    if not hasattr(os, "posix_fallocate"):
        return
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            length = os.fstat(descriptor).st_size
            if length < size:
                os.posix_fallocate(descriptor, length, size - length)
        finally:
            os.close(descriptor)


def _page_size(path: Path, meta: bytes) -> int:
    if len(meta) < _META_BYTES:
        raise Corrupt(f"{path} breaks off inside its meta pages", path=str(path))
    magic, version = _META_HEAD.unpack_from(meta, _META_HEAD_AT)
    if magic != _META_MAGIC:
        raise Corrupt(f"{path} is not the data file of a store", path=str(path))
    if version != _META_VERSION:
        raise Corrupt(f"{path} has data format {version}, not {_META_VERSION}", path=str(path))
    (page_size,) = _PAGE_SIZE.unpack_from(meta, _PAGE_SIZE_AT)
    if page_size not in _PAGE_SIZES:
        raise Corrupt(f"{path} names a page size of {page_size} bytes", path=str(path))
    return int(page_size)


# --- where it lies ------------------------------------------------------------------------------


def placement_notes(target: Path, table: str | None = None) -> tuple[str, ...]:
    """Return warnings about the file system `target` lies on; raise Unavailable where locks do not hold.

    `table` is the text of a mountinfo table, this process's own by default. Systems without one are trusted.
    """
    kind = mount_kind(target, _mount_table() if table is None else table)
    if kind in _REFUSED_MOUNTS:
        raise Unavailable(
            f"{target} lies on {kind}, where file locks do not hold between machines",
            path=str(target),
            file_system=kind,
        )
    return (_NOTED_MOUNTS[kind],) if kind in _NOTED_MOUNTS else ()


def _mount_table() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def mount_kind(target: Path, table: str) -> str:
    """Return the file-system type of the mount `target` lies on, from the text of a mountinfo table."""
    found, kind = "", ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = _unescaped(fields[4])
        # The last of several mounts on one point is the one that is seen.
        if len(point) >= len(found) and target.is_relative_to(point):
            found, kind = point, after.split(" ", 1)[0]
    return kind


def _unescaped(field: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, sign)
    return field


# --- failures -----------------------------------------------------------------------------------


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an Unavailable that says why."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        raise unavailable(path, error.errno or 0) from error


def unavailable(path: Path, code: int) -> Unavailable:
    """Return the failure for an operating-system error code; an input/output error on a full disk says so."""
    if code in (errno.ENOSPC, errno.EDQUOT) or (code == errno.EIO and is_full(path)):
        return Unavailable(f"no space is left on the disk that holds {path}", path=str(path), full=True)
    reason = os.strerror(code) if code else "unknown reason"
    return Unavailable(f"{path} cannot be used: {reason}", path=str(path), errno=code)


def is_full(path: Path) -> bool:
    """Tell whether the disk has no room for a few more pages."""
    try:
        room = os.statvfs(path)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < 1 << 20
