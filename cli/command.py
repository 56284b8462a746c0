"""What all commands share: the global options before or after the name, examples in the help, the `App` they get."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .output import Out
from .revision import DEFAULT, VARIABLE, current

if TYPE_CHECKING:
    import castlog

_STORE = "castlog.store"
_JSON = "castlog.json"


class App:
    """One run of the command line: its output, and the stores it opened, which close when it ends."""

    def __init__(self, ctx: click.Context, target: str | None, as_json: bool) -> None:
        self.out = Out(as_json)
        self._ctx = ctx
        self._target = target

    @classmethod
    def of(cls, ctx: click.Context) -> App:
        """Return the run a context belongs to, with the options parsed so far."""
        return cls(ctx, ctx.meta.get(_STORE), bool(ctx.meta.get(_JSON)))

    def target(self, quiet: bool = False) -> str:
        """Return the store this run works on, existing or not."""
        from .where import find

        return find(self._target, (lambda text: None) if quiet else self.out.say)

    def named(self) -> bool:
        """Return whether the store was named by option or environment rather than found."""
        return self._target is not None or "CASTLOG_STORE" in os.environ

    def store(self, *, create: bool = False, read_only: bool = False, quiet: bool = False) -> castlog.Store:
        """Open the store; it is closed at the end of the run."""
        from .where import open_store

        note = (lambda text: None) if quiet else self.out.say
        return self.keep(open_store(self.target(quiet), note, create=create, read_only=read_only))

    def keep(self, store: castlog.Store) -> castlog.Store:
        """Close a store at the end of the run, also after an error."""
        return self._ctx.with_resource(store)

    def view(self, store: castlog.Store, rev: str | None) -> castlog.View:
        """Return the history a revision names, or for None that of the default one."""
        text = DEFAULT if rev is None else rev
        return store.view(text, current=self.base(store, text))

    def branch(self, store: castlog.Store, rev: str | None) -> castlog.Branch:
        """Return the branch a revision names, or for None the default one."""
        text = DEFAULT if rev is None else rev
        return store.branch(text, current=self.base(store, text))

    def base(self, store: castlog.Store, rev: str) -> str | None:
        """Return what stands in for the branch checked out when `rev` is read, or None.

        Raises an error that names the environment variable, where that is what is wrong.
        """
        named = current()
        if named is None or "/" in rev[1:]:
            return None
        from castlog import Invalid, NotFound

        try:
            store.resolve(named)
        except (NotFound, Invalid) as error:
            raise type(error)(f"{VARIABLE} is {named!r}: {error}", **error.facts) from error
        return named

    def here(self, store: castlog.Store, session: castlog.Session) -> str | None:
        """Return the name of the branch that is current, if it is one of this session."""
        named = current()
        at = store.view(named) if named is not None else store.current
        return at.name if at is not None and at.session.id == session.id else None


class Command(click.Command):
    """A command that takes the global options after its name too, and shows examples as they are typed."""

    examples: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with a fresh `App` as its first argument."""
        ctx.obj = App.of(ctx)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(name: str, *, examples: tuple[str, ...]) -> Callable[[Callable[..., Any]], Command]:
    """Make a function the command `name`; it gets the `App` first and may return an exit code."""

    def wrap(function: Callable[..., Any]) -> Command:
        made = click.command(name, cls=Command)(click.pass_obj(function))
        made.examples = examples
        return made

    return wrap


def global_options() -> list[click.Parameter]:
    """Return fresh `--store` and `--json` options; the last one written counts."""
    return [
        click.Option(
            ["--store"],
            metavar="PATH",
            expose_value=False,
            is_eager=True,
            type=click.Path(),
            help="The store to use. Else CASTLOG_STORE, then .castlog here or above, then ~/.castlog.",
            callback=functools.partial(_remember, _STORE),
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            help="One JSON object a line, with stable keys; errors too, on stderr.",
            callback=functools.partial(_remember, _JSON),
        ),
    ]


def _remember(key: str, ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        ctx.meta[key] = value
