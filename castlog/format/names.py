"""The rules for what people may call things, and why each refusal happens."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

from castlog import limits
from castlog.errors import Invalid

_RESERVED = "/@~^:*?[\\"


def check_name(name: str, what: str = "name") -> str:
    """Return a branch or tag name in Unicode NFC; raises Invalid with what is wrong and what to do."""
    name = _text(name, what, limits.NAME_BYTES_MAX)
    if name[0] in "-.":
        raise Invalid(f"the {what} {name!r} begins with {name[0]!r}; begin it with a letter or digit", value=name)
    if name == "HEAD":
        raise Invalid(f"the {what} HEAD is taken by castlog itself; choose another", value=name)
    for character in name:
        if unicodedata.category(character) == "Cf":
            raise Invalid(f"the {what} {name!r} holds the invisible character {character!r}; leave it out", value=name)
        if character in _RESERVED or character.isspace():
            raise Invalid(
                f"the {what} {name!r} holds {character!r}; leave out spaces and any of / @ ~ ^ : * ? [ \\",
                value=name,
            )
    return name


def check_title(title: str) -> str:
    """Return a session title; raises Invalid when it is empty, too long or not plain text."""
    return _text(title, "title", limits.TITLE_BYTES_MAX)


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels as a dict sorted by key; raises Invalid for a key or value that cannot be kept."""
    if not isinstance(labels, Mapping):
        raise Invalid(f"the labels are a {type(labels).__name__}; give a mapping of text to text", value=labels)
    if len(labels) > limits.LABELS_MAX:
        raise Invalid(f"{len(labels)} labels; a session has at most {limits.LABELS_MAX}")
    checked: dict[str, str] = {}
    for key, value in labels.items():
        key = _text(key, "label", limits.NAME_BYTES_MAX)
        if "=" in key:
            raise Invalid(f"the label {key!r} holds '='; write label and value apart", value=key)
        if key in checked:
            raise Invalid(f"the label {key!r} is given twice, in two Unicode forms; give it once", value=key)
        checked[key] = _text(value, f"value of label {key!r}", limits.LABEL_BYTES_MAX, empty=True)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in checked.items())
    if size > limits.LABELS_BYTES_MAX:
        raise Invalid(f"the labels are {size:,} bytes together; shorten them to {limits.LABELS_BYTES_MAX:,}", size=size)
    return dict(sorted(checked.items()))


def check_type(kind: str) -> str:
    """Return an event type; raises Invalid for one that cannot be kept."""
    return _text(kind, "event type", limits.TYPE_BYTES_MAX)


def check_call_ids(call_ids: Iterable[str]) -> tuple[str, ...]:
    """Return an event's call ids, each once; raises Invalid for those that cannot be kept."""
    checked = tuple([_text(call_id, "call id", limits.CALL_ID_BYTES_MAX) for call_id in call_ids])
    if len(checked) < 2:
        return checked
    checked = tuple(dict.fromkeys(checked))
    if len(checked) > limits.CALLS_PER_EVENT_MAX:
        raise Invalid(f"{len(checked)} call ids; an event carries at most {limits.CALLS_PER_EVENT_MAX}")
    size = sum(len(call_id.encode()) for call_id in checked)
    if size > limits.CALL_IDS_BYTES_MAX:
        raise Invalid(f"the call ids are {size:,} bytes together; keep them below {limits.CALL_IDS_BYTES_MAX:,}")
    return checked


def check_key(key: str) -> str:
    """Return an idempotency key; raises Invalid for one that cannot be kept."""
    return _text(key, "key", limits.IDEMPOTENCY_KEY_BYTES_MAX)


def check_origin(origin: str) -> str:
    """Return a foreign id; raises Invalid for one that cannot be kept."""
    return _text(origin, "origin", limits.LABEL_BYTES_MAX)


def check_harness_version(version: str | None) -> str | None:
    """Return a harness version or None; raises Invalid for one that cannot be kept."""
    return None if version is None else _text(version, "harness version", limits.NAME_BYTES_MAX)


def _text(text: str, what: str, bytes_max: int, *, empty: bool = False) -> str:
    if not isinstance(text, str):
        raise Invalid(f"the {what} is a {type(text).__name__}; give text", value=text)
    if not text and not empty:
        raise Invalid(f"the {what} is empty; give it at least one character", value=text)
    if text.isascii() and text.isprintable() and len(text) <= bytes_max:
        return text
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as exc:
        raise Invalid(f"the {what} {text!r} is not valid Unicode; leave out lone surrogates", value=text) from exc
    text = unicodedata.normalize("NFC", text)
    size = len(text.encode("utf-8"))
    if size > bytes_max:
        raise Invalid(f"the {what} is {size} bytes long; shorten it to {bytes_max}", size=size, limit=bytes_max)
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise Invalid(f"the {what} {text!r} holds the control character {character!r}; leave it out", value=text)
    return text
