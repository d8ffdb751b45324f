"""What FFmpeg logs is heard in the thread that listens, and its level is left as it was."""

from __future__ import annotations

import av

from focus_eval.keyframes.video.decoder import LoggedErrors


def test_what_ffmpeg_logs_is_heard_in_this_thread_and_only_while_listening():
    with LoggedErrors() as heard:
        av.logging.log(av.logging.ERROR, "somewhere", "went wrong")
        av.logging.log(av.logging.WARNING, "somewhere", "looks odd")
        av.logging.log(av.logging.ERROR, "somewhere", "went wrong")
    assert heard == ["somewhere: went wrong", "somewhere: went wrong"]
    av.logging.log(av.logging.ERROR, "somewhere", "is over")
    assert len(heard) == 2


def test_a_level_that_the_program_set_is_kept():
    level = av.logging.get_level()
    av.logging.set_level(av.logging.WARNING)
    try:
        with LoggedErrors() as heard:
            av.logging.log(av.logging.ERROR, "somewhere", "went wrong")
        assert heard == ["somewhere: went wrong"]
        assert av.logging.get_level() == av.logging.WARNING
    finally:
        av.logging.set_level(level)
