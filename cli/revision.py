"""Revisions as people type them: the argument type, its shell completion, and what stands where none is given.

The grammar is castlog's. The environment adds one thing: `CASTLOG_REV` takes the place of what `checkout` set, as the
default and as what short forms (`idea-b`, `@5`, `~2`, `/main`) are read in.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from typing import Any

import click
from click.shell_completion import CompletionItem

VARIABLE = "CASTLOG_REV"
DEFAULT = "HEAD"
SHELL_SAFE = re.compile(r"[\w@/.:+,=%~-]+")


class Revision(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """A revision: `[SESSION/][BRANCH|TAG][@SEQ|@b3:PREFIX][~N]`."""

    name = "REV"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the words, in NFC as names are; only a store can say what they name. Raises Invalid for none."""
        text = str(value)
        if not text.isascii():
            from castlog import Invalid

            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise Invalid(f"{text!r} is not valid Unicode", value=text) from error
        return unicodedata.normalize("NFC", text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer revisions of the store that begin like this; an unusable store offers nothing."""
        from .command import App

        try:
            found = App.of(ctx).store(read_only=True, quiet=True).candidates(incomplete, current=current())
        except Exception:  # a shell in mid-line must not be disturbed, whatever is wrong
            return []
        return [CompletionItem(text) for text in found if SHELL_SAFE.fullmatch(text)]


REV = Revision()


def current() -> str | None:
    """Return the revision that stands in for what `checkout` set, if the environment names one."""
    return os.environ.get(VARIABLE) or None


def typed(text: str) -> str:
    """Return a revision as it is typed into a shell: in quotes where it needs them."""
    return text if SHELL_SAFE.fullmatch(text) and not text.startswith("~") else shlex.quote(text)


def split(text: str) -> tuple[str, str]:
    """Return the part of a revision that names, and the part that says where along it (`@40`, `~2`, or nothing)."""
    found = re.search(r"[@~]", text)
    return (text[: found.start()], text[found.start() :]) if found else (text, "")
