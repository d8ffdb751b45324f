"""Options that several commands share, and the class of every command."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from focus_eval.errors import RENAMED

SeedOption = Annotated[int, typer.Option(help="Seed of all random choices.")]


class Command(TyperCommand):
    """A command that says the new name of an option that was renamed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args`; an option with a former name is a usage error."""
        known = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            former = argument.partition("=")[0]
            if former not in known and RENAMED.get(former) in known:
                ctx.fail(f"No such option: {former}; it is now called {RENAMED[former]}")
        return super().parse_args(ctx, args)
