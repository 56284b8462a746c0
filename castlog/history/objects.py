"""Objects in the map: written in parts, read whole, checked, and kept decoded while they are in use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from castlog import limits
from castlog.engine.base import ReadTxn, WriteTxn
from castlog.errors import Corrupt
from castlog.format import objects as fmt
from castlog.format import rows
from castlog.history import tables


class Cache:
    """Decoded values by key, the least recently used dropped beyond a number of bytes. Shared by threads."""

    def __init__(self, bytes_max: int = limits.CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """Return the value kept under `key`; otherwise `make` gives it and its size in bytes."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[0]
        entry = make()
        self._keep(key, entry)
        return entry[0]

    def find(self, key: Hashable) -> Any:
        """Return the value kept under `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of `size` bytes, unless one is kept under `key` already."""
        self._keep(key, (value, size))

    def _keep(self, key: Hashable, entry: tuple[Any, int]) -> None:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._bytes += entry[1]
                while self._bytes > self._bytes_max and len(self._entries) > 1:
                    self._bytes -= self._entries.popitem(last=False)[1][1]


class Objects:
    """The objects of one store: what its secret opens, with a cache of those in use."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.cache = Cache()

    def read(self, txn: ReadTxn, number: int) -> fmt.Object:
        """Return an object, its digest checked; raises Corrupt naming it."""
        return self._read(txn, number, lambda dictionary: self.dictionary(txn, dictionary))

    def dictionary(self, txn: ReadTxn, number: int) -> fmt.Dictionary:
        """Return a dictionary of the store; raises Corrupt.

        Its row is read each time, since another process may have put another dictionary in its place.
        """
        row = tables.get(txn, rows.DICTIONARIES, number)
        if row is None:
            raise Corrupt(f"dictionary {number} is missing", dictionary=number)

        def load() -> tuple[fmt.Dictionary, int]:
            item = self._read(txn, row.object, fmt.no_dictionary)
            if item.kind != fmt.DICTIONARY:
                raise Corrupt(f"object {row.object} is not a dictionary", object=row.object)
            return fmt.Dictionary(number, item.digest, item.data), len(item.data)

        found: fmt.Dictionary = self.cache.get(("dictionary", number, row.object), load)
        return found

    def stretch(self, txn: ReadTxn, number: int, offset: int, length: int) -> bytes:
        """Return a stretch of a chunk object; raises Corrupt naming the object.

        An object that holds more than the stretch stays decoded for the next one.
        """
        # The number is enough for these: only a rebuilt file has them, and no transaction that writes one is given up.
        key = ("chunks", number)
        data: bytes | None = self.cache.find(key)
        if data is None:
            item = self.read(txn, number)
            if item.kind != fmt.CHUNK:
                raise Corrupt(f"object {number} is not a chunk", object=number)
            data = item.data
            if len(data) > length:
                self.cache.put(key, data, len(data))
        return data[offset : offset + length]

    def write(self, txn: WriteTxn, blob: bytes) -> int:
        """Write an encoded object under a new number and return the number."""
        number = tables.take_number(txn, "object")
        for part, data in enumerate(fmt.split(blob)):
            txn.put(rows.part_key(number, part), data)
        return number

    def _read(self, txn: ReadTxn, number: int, load: fmt.Load) -> fmt.Object:
        parts = [data for _, data in txn.scan(rows.part_key(number, 0), rows.part_key(number + 1, 0))]
        if not parts:
            raise Corrupt(f"object {number} is missing", object=number)
        try:
            return fmt.decode(self.secret, parts[0] if len(parts) == 1 else b"".join(parts), load)
        except Corrupt as exc:
            raise Corrupt(f"object {number}: {exc}", object=number) from exc
