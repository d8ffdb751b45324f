"""Lists the commands for results of others; the command line joins this list with three more."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.external.commands.audit import audit
from focus_eval.external.commands.exchange import evidence, predict, recall
from focus_eval.external.commands.importing import import_

# Heading -> command name -> function and the example at the end of its help. The most used commands come first.
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Results of others": {
        "import": (
            import_,
            "focus-eval import lmms logs/ --out results/runs/theirs \\\n"
            "    --frames-field indices --rates lvb_val_fps.csv",
        ),
        "audit": (audit, "focus-eval audit logs/ --frames-field indices"),
        "recall": (
            recall,
            "focus-eval recall --benchmark lvbench --annotations video_info.meta.jsonl \\\n"
            "    --selections QCA=qca_lvbench.json",
        ),
        "evidence": (evidence, "focus-eval evidence results/runs/field --within"),
        "predict": (
            predict,
            "focus-eval predict MINE=mine.json --logs results/runs/field \\\n"
            "    --annotations lvb_val.json --rates lvb_val_fps.csv \\\n"
            "    --family 'scenes=*scenes*'",
        ),
    },
}
