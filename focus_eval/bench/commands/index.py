"""Lists the commands for making tables, and those that list and check an install."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.bench.commands.demo import demo
from focus_eval.bench.commands.doctor import doctor
from focus_eval.bench.commands.lists import list_
from focus_eval.bench.commands.reports import compare, report
from focus_eval.bench.commands.runs import pack, plan, run, status
from focus_eval.bench.commands.videos import videos

# Heading -> command name -> function and the example at the end of its help. The most used commands come first.
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "A table": {
        "demo": (demo, "focus-eval demo"),
        "plan": (plan, "focus-eval plan alpha"),
        "run": (run, "focus-eval run demo_kinds"),
        "status": (status, "focus-eval status results/runs/demo"),
        "report": (report, "focus-eval report results/runs/demo"),
        "compare": (compare, "focus-eval compare results/runs/mine results/runs/theirs"),
        "pack": (pack, "focus-eval pack results/runs/demo --out demo.zip"),
        "videos": (videos, "focus-eval videos verify data/videos --jobs 4"),
    },
    "A video": {
        "list": (list_, "focus-eval list samplers"),
        "doctor": (doctor, "focus-eval doctor"),
    },
}
