"""What a GPU decodes is compared with the exact frames: here through torchcodec on the processor, for lack of a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.core.errors import MissingDependency, VideoError
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.video import open_video
from support.keyframes.synthetic import write_numbered_clip

try:
    from focus_eval.keyframes.video import torchcodec
    from focus_eval.keyframes.video.torchcodec import (
        TorchCodecCudaNearReader,
        TorchCodecCudaReader,
        frames_to_compare,
    )
except MissingDependency as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_numbered_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", 90, width=64, height=48, fps=10, gop=20)


@pytest.fixture
def readable(written):
    """=The clip, where torchcodec can open it; skips otherwise."""
    try:
        open_video(written, backend="torchcodec").close()
    except MissingDependency as error:
        pytest.skip(str(error))
    return written


def on_processor(kind, *, shift=0, levels=0):
    """Make a reader of `kind` without a GPU, whose decoder is `shift` frames late and adds `levels` to each pixel."""

    class Moved(kind):
        device = "cpu"

        def _frame(self, number):
            pixels = super()._frame(min(number + shift, self.info.n_frames - 1))
            return np.clip(pixels.astype(int) + levels, 0, 255).astype(np.uint8)

    return Moved


def test_a_decoder_that_gives_the_exact_frames_is_accepted(readable):
    with on_processor(TorchCodecCudaReader)(readable) as reader, open_video(readable) as exact:
        numbers = [80, 3, 3, 41]
        np.testing.assert_array_equal(reader.read(numbers), exact.read(numbers))


def test_another_frame_or_another_rounding_is_refused_with_the_count(readable):
    with pytest.raises(VideoError, match=r"decodes \d+ of \d+ compared frames differently, the first 0.*backend pyav"):
        on_processor(TorchCodecCudaReader, shift=1)(readable)
    with pytest.raises(VideoError, match="torchcodec_cuda_near to accept"):
        on_processor(TorchCodecCudaReader, levels=1)(readable)


def test_who_asks_gets_other_rounding_but_never_another_frame(readable):
    with on_processor(TorchCodecCudaNearReader, levels=1)(readable) as reader:
        assert reader.read([5]).shape == (1, 48, 64, 3)
    with pytest.raises(VideoError, match="compared frames differently"):
        on_processor(TorchCodecCudaNearReader, shift=1)(readable)


def test_frames_after_sync_frames_are_among_those_compared():
    compared = frames_to_compare(90, np.array([0, 20, 40, 60, 80]))
    assert {1, 21, 41, 61, 81, 0, 89} <= set(compared.tolist())
    assert frames_to_compare(3, None).tolist() == [0, 1, 2]


def test_without_a_gpu_the_reader_says_so(written):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(MissingDependency, match="needs a GPU"):
        open_video(written, backend="torchcodec_cuda")


def test_without_ffmpeg_torchcodec_says_what_to_install(written, monkeypatch):
    def without(*arguments, **options):
        raise RuntimeError("Could not load libtorchcodec. Likely causes: 1. FFmpeg is not properly installed")

    monkeypatch.setattr(torchcodec, "VideoDecoder", without)
    with pytest.raises(MissingDependency, match="install ffmpeg, or use backend pyav"):
        open_video(written, backend="torchcodec")


def test_rows_of_inexact_pixels_say_so_and_are_other_selections():
    selectors = {
        name: Selector(sampler=make_sampler("uniform"), encoder=None, k=4, backend=name)
        for name in ("pyav", "torchcodec_cuda", "torchcodec_cuda_near")
    }
    ids = {name: selector.selection_id for name, selector in selectors.items()}
    assert ids["pyav"] == ids["torchcodec_cuda"] != ids["torchcodec_cuda_near"]
    assert selectors["torchcodec_cuda_near"].identity["video_backend"] == "torchcodec_cuda_near"
