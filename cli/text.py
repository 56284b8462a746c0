"""Text that is safe and fits: nothing recorded in a store may drive the terminal of the person who reads it.

Pure functions over strings. This module knows nothing of events or of castlog.
"""

from __future__ import annotations

import unicodedata

_INVISIBLE = (
    *(code for code in range(0x20) if code not in (0x09, 0x0A)),  # C0 controls, ESC among them
    *range(0x7F, 0xA0),  # DEL and the C1 controls, which xterm obeys in UTF-8 too
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),  # line separators and the bidirectional overrides that reorder what is read
    *range(0x2066, 0x206A),
    0xFEFF,
)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


_SHOWN = {code: _escape(code) for code in _INVISIBLE} | {code: _escape(code) for code in range(0xD800, 0xE000)}
_FLAT = _SHOWN | {0x0A: " ", 0x0D: " ", 0x09: " ", 0x2028: " ", 0x2029: " "}
_IN_JSON = {code: f"\\u{code:04x}" for code in _SHOWN}


def clean(text: str) -> str:
    """Return `text` with control characters and direction overrides made visible; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_SHOWN)


def flat(text: str) -> str:
    """Return `text` on one line: cleaned, and runs of white space shrunk to one space."""
    return " ".join(text.translate(_FLAT).split())


def clean_json(line: str) -> str:
    """Return a line of JSON with the same meaning and no character a terminal would obey."""
    return line if line.isascii() else line.translate(_IN_JSON)


def cells(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def cut(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, ending in an ellipsis where something was left out."""
    if len(text) <= width and (text.isascii() or cells(text) <= width):
        return text
    room = max(width - 1, 0)
    used = 0
    for index, char in enumerate(text):
        used += _width(char)
        if used > room:
            return text[:index].rstrip() + "…" if width > 0 else ""
    return text


def pad(text: str, width: int) -> str:
    """Return `text` cut or filled with spaces to exactly `width` columns."""
    text = cut(text, width)
    return text + " " * (width - cells(text))


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun: `1 event`, `1,204 events`."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def _width(char: str) -> int:
    if char < "\x7f":
        return 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
