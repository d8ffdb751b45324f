"""`audit` finds logs whose prompts were made for other frames than those that the model was shown."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from tests.external.imports.test_lmms_logs import line, write_log

LISTED = "This video's subtitles are listed below: \nHello.\nWhat?\n(A) yes\n(B) no"
EVEN, UNEVEN = [0, 14, 28, 42, 57, 71, 85, 99], [1, 2, 3, 4, 5, 6, 7, 90]


def audit_log(folder, prompt, *, indices=(), arguments=None, reads_frames=True):
    """The exit code of `audit` of a log of 8 frames with this prompt, and its finding about prompts ("" for none)."""
    log_lines = [
        {"doc_id": at, "doc": {"indices": indices, "question": f"What {at}?"}, "input": prompt} for at in range(3)
    ]
    configs = {"my_task": {"metric_list": [{"metric": "acc"}], "lmms_eval_specific_kwargs": {"default": arguments}}}
    write_log(folder, [line(**values) for values in log_lines], configs=configs, results={"my_task": {"acc,none": 1.0}})
    options = ["--frames-field", "indices"] if reads_frames else []
    result = CliRunner().invoke(app, ["audit", str(folder), *options])
    lines = [text for text in result.output.splitlines() if "prompts made for other frames" in text]
    return result.exit_code, (lines or [""])[0].partition("; 0: ")[2]


@pytest.mark.parametrize(
    ("prompt", "options", "reason"),
    [
        ("<image>\n" * 16 + "What?", {"indices": EVEN}, "16 <image> in the text, 8 pictures shown"),
        ("<image>\n" * 16 + "What?", {"reads_frames": False}, "16 <image> in the text, 8 pictures shown"),
        (LISTED, {"arguments": {"frame_num": 32}, "indices": EVEN}, "the task states frame_num=32, 8 frames shown"),
        (LISTED, {"arguments": {"frame_num": 8}, "indices": UNEVEN}, "the task states frame_num=8, 8 frames shown"),
        (LISTED, {"indices": UNEVEN}, "its subtitles are those of even frames"),
    ],
)
def test_a_prompt_for_other_frames_is_a_fault(tmp_path, prompt, options, reason):
    assert audit_log(tmp_path, prompt, **options) == (1, reason)


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("What?", {"indices": UNEVEN}),
        ("<image>\n" * 8 + "What?", {"indices": EVEN}),
        (LISTED, {"arguments": {"frame_num": 8}, "indices": EVEN}),
        (LISTED, {"arguments": {"frame_num": 8}, "reads_frames": False}),
        (LISTED, {"reads_frames": False}),
        ("What?", {"arguments": {"insert_interleave_subtitles": False}, "indices": UNEVEN}),
    ],
)
def test_a_prompt_for_the_shown_frames_and_one_of_which_nothing_is_known_are_none(tmp_path, prompt, options):
    assert audit_log(tmp_path, prompt, **options) == (0, "")
