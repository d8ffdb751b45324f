"""Shows the chosen frames to LLaVA-OneVision-1.5, whose wrapper reads videos through qwen-vl-utils."""

from __future__ import annotations

from typing import Any, ClassVar

import transformers
from lmms_eval.models.chat.llava_onevision1_5 import Llava_OneVision1_5
from loguru import logger

from focus_eval.lmms.models.qwen_vl import QwenAdapter
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.tracing import GenerateTrace


class FocusLlavaOnevision1_5(QwenAdapter, Llava_OneVision1_5):  # type: ignore[misc]
    """LLaVA-OneVision-1.5, chat requests; lmms-eval's simple wrapper passes the model a time it refuses."""

    model_id: ClassVar[str] = "focus_llava_onevision1_5"
    stock_name: ClassVar[str] = "llava_onevision1_5"
    is_simple: ClassVar[bool] = False

    @classmethod
    def check_installed(cls) -> None:
        """Also log a warning if the installed transformers cannot run the published weights' code."""
        super().check_installed()
        if runs_code_of_the_hub():
            logger.warning(
                f"{cls.model_id}: transformers {transformers.__version__} has no LLaVA-OneVision-1.5 of its own, and "
                "the code that comes with the published weights is reported not to run on transformers 5 "
                "(LLaVA-OneVision-2 issue 108); for those weights use transformers 4.57 and lmms-eval's own wrapper"
            )

    def trace_model(self, view: Any, batch: list[PendingRequest], trace: GenerateTrace) -> None:
        """Also make the wrapper's second sampling keep the frames of the first question of a batch.

        It takes `max_num_frames` of them by linspace, which would repeat frames if fewer were chosen.
        """
        super().trace_model(view, batch, trace)
        first = batch[0].frame_batch
        if first is not None and first.scales is None:
            view.max_num_frames = len(first.frames)


def runs_code_of_the_hub() -> bool:
    """Return True if the installed transformers (5 or later) would run the code that comes with the weights."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # type: ignore[attr-defined]

    is_known = any(name.replace("_", "").startswith("llavaonevision15") for name in CONFIG_MAPPING_NAMES)
    return not is_known and int(transformers.__version__.partition(".")[0]) >= 5
