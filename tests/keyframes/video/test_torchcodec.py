"""What torchcodec needs, and how rows say that its pixels are not the exact ones."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import select_keyframes
from focus_eval.core.errors import MissingDependency, UnknownName
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video import open_video
from tests.conftest import require_packages
from tests.support.keyframes.hdr_clips import write_photograph
from tests.support.keyframes.synthetic import write_numbered_clip

require_packages("torchcodec")

try:
    from focus_eval.keyframes.video import torchcodec
except MissingDependency as error:
    pytest.skip(str(error), allow_module_level=True)


def test_without_ffmpeg_torchcodec_says_what_to_install(tmp_path, monkeypatch):
    clip = write_numbered_clip(tmp_path / "clip.mp4", 90, width=64, height=48, fps=10, gop=20)

    def fail_to_load(*arguments, **options):
        raise RuntimeError("Could not load libtorchcodec. Likely causes: 1. FFmpeg is not properly installed")

    monkeypatch.setattr(torchcodec, "VideoDecoder", fail_to_load)
    with pytest.raises(MissingDependency, match="install ffmpeg, or use backend pyav"):
        open_video(clip, backend="torchcodec")


def test_a_selection_warns_of_hdr_that_torchcodec_cannot_map(tmp_path):
    path = write_photograph(tmp_path / "hdr.mp4", np.full((32, 32, 3), 128, dtype=np.uint8), "PQ")
    assert "HDR (PQ)" in select_keyframes(path, k=1, backend="torchcodec").warning


def test_rows_of_inexact_pixels_say_so_and_are_other_selections():
    selectors = {
        name: Selector(sampler=make_sampler("uniform"), encoder=None, k=4, backend=name)
        for name in ("pyav", "pyav:n_threads=2", "torchcodec")
    }
    ids = {name: selector.selection_id for name, selector in selectors.items()}
    assert ids["pyav"] == ids["pyav:n_threads=2"] != ids["torchcodec"]
    assert "video_backend" not in selectors["pyav"].identity
    assert selectors["torchcodec"].identity["video_backend"] == "torchcodec"


@pytest.mark.parametrize("name", ["torchcodec_cuda", "torchcodec_cuda_near"])
def test_the_readers_that_left_are_refused_by_name(name, tmp_path):
    with pytest.raises(UnknownName, match=f"video reader {name!r}; .*torchcodec"):
        open_video(write_numbered_clip(tmp_path / "clip.mp4", 30, width=64, height=48), backend=name)
