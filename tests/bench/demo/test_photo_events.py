"""Does the demo benchmark come out whole, the same every time, and readable by lmms-eval's own code?"""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.demo import photo_events
from focus_eval.bench.demo.photo_events import FOLDER, build_photo_events
from focus_eval.bench.demo.photographs import PHOTOGRAPHS
from focus_eval.bench.demo.storyboard import FRAMES_PER_MOVE, Shot, render, storyboards
from focus_eval.core.errors import InvalidInput, MissingDependency, RunError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter

pytestmark = pytest.mark.slow

pytest.importorskip("skimage")

# Its processes import this file too, and stop for ever before the picture that follows 20 kB.
BUILD = """
import sys, threading
from pathlib import Path
from focus_eval.bench.demo.photo_events import build_photo_events
from focus_eval.keyframes.video.clip_writer import ClipWriter

write = ClipWriter.write

def held(self, pixels, **options):
    if self.path.exists() and self.path.stat().st_size > 20_000:
        Path(__file__).with_name("held").touch()
        threading.Event().wait()
    write(self, pixels, **options)

ClipWriter.write = held
if __name__ == "__main__":
    build_photo_events(sys.argv[1], video_ids=["short_a", "short_b"])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The demo's two shortest videos; the folder serves as HF_HOME."""
    home = tmp_path_factory.mktemp("demo")
    build_photo_events(home, video_ids=["short_a", "short_b"])
    return home


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The same videos made in another folder by one process, and kept in the folder `cache` beside it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    build_photo_events(folder / "home", video_ids=["short_a", "short_b"], n_workers=1, cache=folder / "cache")
    return folder


@pytest.fixture(scope="module")
def boards():
    aspects = {name: item.open().width / item.open().height for name, item in PHOTOGRAPHS.items()}
    return {board.video_id: board for board in storyboards(aspects)}


def rendered(shot: Shot, picture, **size) -> list[np.ndarray]:
    """Return every frame of a shot."""
    return [pixels for pixels, n_times in render(shot, picture, **size) for _ in range(n_times)]


def colours_of(planes: np.ndarray) -> np.ndarray:
    """Return the RGB picture of yuv420p planes."""
    return av.VideoFrame.from_ndarray(planes, format="yuv420p").to_ndarray(format="rgb24")


def digests(home: Path) -> dict[str, str]:
    """Hash of every file of the data set."""
    files = sorted(path for path in (home / FOLDER).rglob("*") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_file_has_the_storyboards_frames_rate_and_x264s_usual_sync_distance(built, boards):
    for video_id in ("short_a", "short_b"):
        with open_video(built / FOLDER / "videos" / f"{video_id}.mp4") as reader:
            assert reader.info.n_frames == boards[video_id].n_frames
            assert reader.info.fps == pytest.approx(float(boards[video_id].fps))
            gaps = np.diff([*reader.info.sync_frames, reader.info.n_frames])
        assert gaps.max() <= 250
        assert gaps.max() > 100


def test_frames_at_the_evidence_show_the_answers_photograph(built, boards):
    for question in read_annotations("photo_events", built / FOLDER):
        video_id, _, number = question.id.rpartition("_")
        board = boards[video_id]
        with open_video(built / FOLDER / "videos" / question.video) as reader:
            for time_seconds, (start, stop) in zip(
                question.evidence_seconds, board.questions[int(number)].scenes, strict=True
            ):
                frame = round(time_seconds * float(board.fps))
                shot = board.shots[np.searchsorted(np.cumsum([item.n_frames for item in board.shots]), start, "right")]
                drawn = rendered(shot, PHOTOGRAPHS[shot.photograph].open(), width=320, height=180)[frame - start]
                assert start <= frame < stop
                difference = reader.read(np.array([frame]))[0].astype(float) - colours_of(drawn)
                assert np.abs(difference).mean() < 8


def test_the_same_bytes_come_out_elsewhere(built, elsewhere):
    assert digests(elsewhere / "home") == digests(built)


def test_videos_of_the_cache_are_copied_if_they_are_whole(built, elsewhere, tmp_path, monkeypatch):
    cache = shutil.copytree(elsewhere / "cache", tmp_path / "cache")
    drawn: list[object] = []
    monkeypatch.setattr(photo_events, "_write_videos", lambda root, todo, *_, **__: drawn.extend(todo))
    build_photo_events(tmp_path / "second", video_ids=["short_a"], cache=cache)
    assert drawn == []
    video = (built / FOLDER / "videos" / "short_a.mp4").read_bytes()
    assert (tmp_path / "second" / FOLDER / "videos" / "short_a.mp4").read_bytes() == video
    cached_videos = {path.read_bytes(): path for path in cache.iterdir()}
    assert len(cached_videos) == 2
    cached_videos[video].write_bytes(video[:-1])
    with pytest.raises(RunError, match="short_a"):  # nothing was drawn in its place
        build_photo_events(tmp_path / "third", video_ids=["short_a"], cache=cache)
    assert [board.video_id for board in drawn] == ["short_a"]


def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(built, tmp_path):
    (tmp_path / "build.py").write_text(BUILD)
    build = subprocess.Popen([sys.executable, str(tmp_path / "build.py"), str(tmp_path)])
    videos = tmp_path / FOLDER / "videos"
    while build.poll() is None and not (tmp_path / "held").exists():
        time.sleep(0.01)
    build.send_signal(signal.SIGKILL)
    assert build.wait() == -signal.SIGKILL
    assert not (videos.parent / "lvb_val.json").exists()
    leftovers = list(videos.glob(".short_*"))
    assert leftovers
    build_photo_events(tmp_path, video_ids=["short_a", "short_b"])
    assert digests(tmp_path) == digests(built)
    assert not any(path.exists() for path in leftovers)


def test_finished_videos_are_kept_and_damaged_ones_written_again(built):
    first, second = (built / FOLDER / "videos" / name for name in ("short_a.mp4", "short_b.mp4"))
    expected = digests(built)
    mtime = first.stat().st_mtime_ns
    second.write_bytes(second.read_bytes()[:1000])
    seen_videos = []
    build_photo_events(built, video_ids=["short_a", "short_b"], progress=lambda *step: seen_videos.append(step))
    assert first.stat().st_mtime_ns == mtime
    assert digests(built) == expected
    assert {video_id for video_id, _, _ in seen_videos} == {"short_b"}
    assert seen_videos[-1][1] == seen_videos[-1][2]


def test_a_video_of_another_recipe_is_written_again(built):
    manifest = built / FOLDER / "photo_events.json"
    expected = digests(built)
    entries = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**entries, "short_a": {**entries["short_a"], "recipe": "older"}}))
    seen_videos = []
    build_photo_events(built, video_ids=["short_a", "short_b"], progress=lambda *step: seen_videos.append(step[0]))
    assert set(seen_videos) == {"short_a"}
    assert digests(built) == expected


def test_both_annotations_say_the_same(built):
    table = read_annotations("photo_events", built / FOLDER)
    assert table == read_annotations("photo_events", built / FOLDER / "lvb_val.json")
    assert [question.benchmark for question in table] == ["photo_events"] * 10


@pytest.mark.slow
def test_lmms_evals_own_longvideobench_task_reads_it(built, monkeypatch):
    pytest.importorskip("lmms_eval")
    import datasets
    from lmms_eval.tasks.longvideobench import utils

    monkeypatch.setenv("HF_HOME", str(built))
    documents = datasets.load_dataset(str(built / FOLDER), cache_dir=str(built / "cache"))["validation"]
    assert len(documents) == 10
    for document in documents:
        (path,) = utils.longvideobench_doc_to_visual_v(document)
        assert Path(path).resolve() == (built / FOLDER / "videos" / document["video_path"]).resolve()
        text = utils.longvideobench_doc_to_text(document, {"pre_prompt": "", "post_prompt": ""})
        assert text.startswith(document["question"] + "\nA. ")
        letter = "ABCD"[document["correct_choice"]]
        accuracy = utils.longvideobench_process_results(document, [letter])["lvb_acc"]
        assert accuracy["parsed_pred"] == accuracy["answer"] == letter


def test_a_missing_package_or_picture_is_named_with_what_to_do():
    cat = PHOTOGRAPHS["cat"]
    with pytest.raises(MissingDependency, match=r"'cat' is part of scikit-image: pip install"):
        _ = replace(cat, package="no_such_package").path
    with pytest.raises(MissingDependency, match=r"skimage/data/no_cat\.png is not in this installation"):
        replace(cat, file="data/no_cat.png").open()


def test_a_damaged_picture_is_named(tmp_path, monkeypatch):
    package = tmp_path / "broken_pictures"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cat.png").write_bytes(b"no picture")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"cat\.png: cannot be read as a picture"):
        replace(PHOTOGRAPHS["cat"], package="broken_pictures", file="cat.png").open()


@pytest.fixture
def full_disk(tmp_path):
    """A file system of one megabyte; skips where this user may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system could be mounted: {mounted.stderr.decode().strip()}")
    yield disk
    gc.collect()  # a container that could not be closed still holds its file
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_too_little_space_is_said_before_anything_is_written(full_disk):
    with pytest.raises(RunError, match=r"needs about 2 MB, 1 MB are free"):
        build_photo_events(full_disk, video_ids=["short_a", "short_b"])
    assert not list((full_disk / FOLDER / "videos").iterdir())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PyAV closes its file once more
def test_a_disk_that_fills_up_is_named_and_leaves_no_half_video(full_disk, monkeypatch):
    monkeypatch.setattr("focus_eval.bench.demo.photo_events.BYTES_PER_FRAME", 0)
    (full_disk / "others").write_bytes(b"x" * 850_000)
    with pytest.raises(RunError, match=r"no space left; free some and start again"):
        build_photo_events(full_disk, video_ids=["short_a"])
    assert not list((full_disk / FOLDER / "videos").iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "datasets").write_text("a file where a folder must be")
    with pytest.raises(RunError, match="longvideobench: cannot be written"):
        build_photo_events(tmp_path, video_ids=["short_a"])


def test_a_picture_written_for_several_frames_is_the_same_as_written_again_and_again(tmp_path):
    shot = Shot("temple", 31, (0, 0, 0.8, 0.7), (0.2, 0.3, 1, 1))
    runs = list(render(shot, PHOTOGRAPHS["temple"].open(), width=64, height=36))
    for name in ("once.mp4", "again.mp4"):
        with ClipWriter(tmp_path / name, width=64, height=36, fps=24, n_threads=1) as writer:
            for pixels, n_times in runs:
                if name == "once.mp4":
                    writer.write(pixels, n_times=n_times)
                else:
                    for _ in range(n_times):
                        writer.write(pixels)
        assert writer.n_frames == 31
    assert (tmp_path / "once.mp4").read_bytes() == (tmp_path / "again.mp4").read_bytes()


def test_a_still_shot_is_still_and_a_moving_one_moves():
    picture = PHOTOGRAPHS["temple"].open()
    still = rendered(Shot("temple", 20, (0, 0, 0.8, 0.7), (0, 0, 0.8, 0.7)), picture, width=64, height=36)
    moving = rendered(Shot("temple", 21, (0, 0, 0.8, 0.7), (0.2, 0.3, 1, 1)), picture, width=64, height=36)
    assert all(np.array_equal(frame, still[0]) for frame in still)
    assert len(moving) == 21
    step = FRAMES_PER_MOVE
    assert all(not np.array_equal(a, b) for a, b in zip(moving[:-step], moving[step:], strict=True))
    (mirrored,) = rendered(Shot("temple", 1, (0, 0, 1, 1), (0, 0, 1, 1), mirrored=True), picture, width=64, height=36)
    (plain,) = rendered(Shot("temple", 1, (0, 0, 1, 1), (0, 0, 1, 1)), picture, width=64, height=36)
    luma, mirrored_luma = plain[:36].astype(int), mirrored[:36].astype(int)
    assert np.abs(mirrored_luma - luma[:, ::-1]).max() <= 2


def test_planes_are_drawn_in_the_colours_that_rgb_would_have():
    shot, picture = Shot("motorcycle", 1, (0, 0, 0.9, 0.8), (0, 0, 0.9, 0.8)), PHOTOGRAPHS["motorcycle"].open()
    ((planes, _),) = render(shot, picture, width=320, height=180)
    colours = colours_of(planes).astype(int)
    box = (0, 0, 0.9 * picture.width, 0.8 * picture.height)
    drawn = np.asarray(picture.resize((320, 180), Image.Resampling.BILINEAR, box=box))
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(drawn), format="rgb24").reformat(format="yuv420p")
    expected = frame.to_ndarray(format="rgb24").astype(int)
    assert np.abs(colours - expected).mean() < 3
    assert np.abs(colours.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))).max() < 2


def test_views_outside_the_picture_are_refused():
    with pytest.raises(InvalidInput, match="inside its picture"):
        Shot("cat", 1, (0.5, 0, 1.2, 1), (0, 0, 1, 1))
    with pytest.raises(InvalidInput, match="at least 1 frame"):
        Shot("cat", 0, (0, 0, 1, 1), (0, 0, 1, 1))
