"""Lists the commands for videos; the command line joins four such lists."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.keyframes.commands.ask import ask
from focus_eval.keyframes.commands.select import select

# Each command with the example that its help ends with, by heading. The most used come first.
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "A video": {
        "select": (select, 'focus-eval select holiday.mp4 --query "a dog" -k 8 --sheet sheet.png'),
        "ask": (
            ask,
            'focus-eval ask holiday.mp4 "Who plays with the dog?" \\\n    --llm chat:model=gpt-4o-mini',
        ),
    },
}
