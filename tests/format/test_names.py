"""Names: what people may call things, and that each refusal says what is wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castlog import limits
from castlog.errors import Invalid
from castlog.format import names

CHECKS: list[tuple[Callable[[str], object], int]] = [
    (names.check_name, limits.NAME_BYTES_MAX),
    (names.check_title, limits.TITLE_BYTES_MAX),
    (names.check_type, limits.TYPE_BYTES_MAX),
    (lambda word: names.check_call_ids([word])[0], limits.CALL_ID_BYTES_MAX),
    (names.check_key, limits.IDEMPOTENCY_KEY_BYTES_MAX),
    (names.check_origin, limits.LABEL_BYTES_MAX),
    (names.check_harness_version, limits.NAME_BYTES_MAX),
]
checks = pytest.mark.parametrize(("check", "bytes_max"), CHECKS, ids=lambda value: getattr(value, "__name__", value))


@pytest.mark.parametrize("name", ["main", "idea-b", "try-1", "größe", "分支", "a.b", "x" * 200, "ä" * 100, "1", "head"])
def test_good_names_are_kept(name: str) -> None:
    """Ordinary names in any script are kept as they are."""
    assert names.check_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is empty"),
        ("../x", "begins with"),
        ("-x", "begins with"),
        (".x", "begins with"),
        ("HEAD", "taken by castlog itself"),
        ("x" * 600, "600 bytes long; shorten it to 200"),
        ("ä" * 101, "202 bytes long; shorten it to 200"),
        *[(f"a{mark}b", "leave out spaces") for mark in "/@~^:*?[\\ \u00a0\u3000"],
        *[(f"a{mark}b", "control character") for mark in "\x00\n\t\x1b\x7f\x85\u2028\u2029"],
        ("a\ud800", "not valid Unicode"),
        (None, "NoneType; give text"),
        (b"main", "bytes; give text"),
        (7, "int; give text"),
    ],
)
def test_bad_names_are_refused(name: str, reason: str) -> None:
    """A name that a revision could not say, or a screen not show, is Invalid with the reason."""
    with pytest.raises(Invalid, match=reason):
        names.check_name(name)


def test_two_unicode_forms_are_one_name() -> None:
    """A name is kept in NFC, so that two ways to write it are one name; its length counts after that."""
    composed = "ä" * 100
    assert names.check_name(unicodedata.normalize("NFD", composed)) == composed
    assert names.check_name("Å") == "Å"


@checks
def test_texts_are_bounded_in_bytes(check: Callable[[str], object], bytes_max: int) -> None:
    """A text of just its bound is kept, one byte more is refused, in ASCII and beyond."""
    assert check("x" * bytes_max) == "x" * bytes_max
    assert check("é" * (bytes_max // 2)) == "é" * (bytes_max // 2)
    for text in ("x" * (bytes_max + 1), "é" * (bytes_max // 2 + 1)):
        with pytest.raises(Invalid) as caught:
            check(text)
        assert caught.value.limit == bytes_max
        assert caught.value.size > bytes_max


@checks
@given(text=st.text(max_size=30))
def test_what_passes_is_normal_and_passes_again(check: Callable[[str], str], bytes_max: int, text: str) -> None:
    """What a check returns is NFC, printable as one line, within its bound, and a second check changes nothing."""
    try:
        kept = check(text)
    except Invalid:
        return
    assert kept == unicodedata.normalize("NFC", text)
    assert len(kept.encode()) <= bytes_max
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in kept)
    assert check(kept) == kept


def test_labels_are_checked_and_sorted() -> None:
    """Labels come back sorted by key; a value may be empty, a key may not, nor hold an equals sign."""
    assert list(names.check_labels({"b": "2", "a": ""})) == ["a", "b"]
    assert names.check_labels({"e\u0301": "e\u0301"}) == {"é": "é"}
    for labels in (
        {"": "x"},
        {"a=b": "x"},
        {"a": "x\n"},
        {"a": "x" * 1001},
        {"a" * 201: "x"},
        {"a": 1},
        {1: "a", "b": ""},
    ):
        with pytest.raises(Invalid):
            names.check_labels(labels)  # type: ignore[arg-type]
    for labels in (["team"], "team", 7, None):
        with pytest.raises(Invalid, match="give a mapping"):
            names.check_labels(labels)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="given twice"):
        names.check_labels({"é": "1", "e\u0301": "2"})
    assert len(names.check_labels({str(number): "" for number in range(limits.LABELS_MAX)})) == limits.LABELS_MAX
    with pytest.raises(Invalid, match="101 labels"):
        names.check_labels({str(number): "" for number in range(limits.LABELS_MAX + 1)})


def test_no_harness_version_is_none() -> None:
    """The absence of a harness version passes."""
    assert names.check_harness_version(None) is None
