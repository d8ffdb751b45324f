"""`select_keyframes` as a program calls it: every kind of video, what comes back, clear errors for what is wrong."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from focus_eval import (
    Selection,
    VideoInfo,
    errors,
    load_run,
    make_encoder,
    make_sampler,
    open_video,
    recall,
    select_keyframes,
)
from focus_eval.cli import app
from focus_eval.keyframes.encoders.offline import OfflineScorer
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.video.clip_writer import ClipWriter

pytest.importorskip("openvino", reason="the offline extra is not installed")
SHARED = Path(__file__).resolve().parents[3] / "shared"


def picture(number):
    """Return a grey picture with a bright bar that moves, so that no two are equal."""
    pixels = np.full((48, 64, 3), 40, dtype=np.uint8)
    pixels[:, number % 64] = 200
    return pixels


def write_clip(folder, *, seed=0):
    """Sixty pictures that no clip of another seed has: equal pictures are encoded once in a process."""
    path = folder / "bars.mp4"
    noise = np.random.default_rng(seed).integers(0, 40, (60, 48, 64, 3), dtype=np.uint8)
    with ClipWriter(path, width=64, height=48, fps=10, gop=8) as writer:
        for number in range(60):
            writer.write(picture(number) + noise[number])
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def selection(clip):
    return select_keyframes(clip, query="a bar", k=4)


def test_by_default_every_frame_of_a_short_clip_is_scored(selection):
    assert isinstance(selection, Selection)
    assert (selection.sampler, selection.n_pulls, selection.query) == ("even_cover", 60, "a bar")
    assert selection.is_scored.all()
    assert (selection.relevance > 0).all()


def test_images_are_the_frames_of_the_exact_reader(clip, selection):
    with open_video(clip) as video:
        expected = video.read(np.array(selection.keyframes))
    assert np.array_equal(np.stack([np.asarray(image) for image in selection.images()]), expected)


def test_a_frame_chosen_twice_is_shown_twice(clip):
    selection = select_keyframes(clip, query="a bar", k=4, sampler="uniform")
    object.__setattr__(selection, "keyframes", (3, 3, 9))
    first, second, third = (np.asarray(image) for image in selection.images())
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


def test_times_are_the_files_own_on_an_uneven_file():
    path = SHARED / "data/video/sample_android_slow_motion.mp4"
    if not path.is_file():
        pytest.skip(f"{path.name} is not here")
    selection = select_keyframes(path, query="water", k=4, sampler="uniform")
    with open_video(path) as video:
        assert selection.times == tuple(np.round(video.frame_times(np.array(selection.keyframes)), 6))
    assert max(abs(np.array(selection.times) - np.array(selection.keyframes) / selection.video.fps)) > 0.2


def test_a_frame_that_was_not_scored_gets_the_value_between_its_neighbours(clip):
    selection = select_keyframes(clip, query="a bar", k=3, sampler="uniform")
    assert np.isnan(selection.relevance).all()
    assert not selection.is_scored.any()
    sparse = select_keyframes(clip, query="a bar", k=8, sampler_options={"pulls": 5})
    relevance_at = dict(zip(sparse.pulled_frames.tolist(), sparse.pulled_relevance.tolist(), strict=True))
    for frame, value, is_scored in zip(sparse.keyframes, sparse.relevance, sparse.is_scored, strict=True):
        assert is_scored == (frame in relevance_at)
        low = max((f for f in relevance_at if f <= frame), default=min(relevance_at))
        high = min((f for f in relevance_at if f >= frame), default=max(relevance_at))
        assert min(relevance_at[low], relevance_at[high]) <= value <= max(relevance_at[low], relevance_at[high])


def test_sheet_json_and_notebook_show_the_selection(selection, tmp_path):
    written = json.loads(selection.to_json())
    assert written["keyframes"] == list(selection.keyframes)
    assert written["frames_scored"] == 1.0
    with Image.open(selection.save_sheet(tmp_path / "sheet.png")) as sheet:
        assert sheet.width > 800
    assert selection._repr_html_().startswith("<img ")
    assert repr(selection) == "<bars.mp4: 4 keyframes for 'a bar', even_cover, 60 of 60 frames scored>"


def test_a_query_outside_the_vocabulary_is_flagged_with_the_nearest_names(clip, tmp_path):
    flagged, plain = select_keyframes(clip, query=["a slide with a bar chart", "a bar"], k=2, encoder="offline")
    assert "may not know 'a slide with a bar chart'; the nearest it knows: horizontal bar, " in flagged.warning
    assert (plain.warning, json.loads(plain.to_json())["warning"]) == ("", None)
    assert json.loads(flagged.to_json())["warning"] == flagged.warning
    with_warning, plain_title = (item.sheet.get_suptitle() for item in (flagged, plain))
    assert flagged.warning in with_warning
    assert with_warning.count("\n") == plain_title.count("\n") + 1


def test_a_sheet_names_the_query_and_marks_the_best_of_its_captioned_frames(selection):
    assert selection.sheet.get_suptitle().startswith("a bar: 4 frames chosen by even_cover, 60 of 60 frames scored")
    captions = [axes.get_title() for axes in selection.sheet.axes[:4]]
    assert [caption.splitlines()[0] for caption in captions] == [
        f"0:{seconds:05.2f}  #{frame}" for frame, seconds, _ in selection
    ]
    best = int(np.argmax(selection.relevance))
    assert [number for number, caption in enumerate(captions) if "best: " in caption] == [best]
    assert captions[best].endswith(f"relevance {selection[best].relevance:.2f}")


def test_that_nothing_stands_out_is_said_below_the_encoders_bound(clip):
    class Dim(OfflineScorer):
        def relevance(self, features, query):
            return 0.4 + 0 * super().relevance(features, query)

    (dim,) = select_keyframes(clip, query=["a dog"], k=4, encoder=Dim())
    assert "Nothing stands out: the best relevance is 0.40, below 0.5." in dim.warning
    assert dim.as_dict()["warning"] == dim.warning
    summary = select_keyframes(clip, k=4)
    assert summary.warning == ""


def test_a_second_query_scores_the_frames_of_the_first(tmp_path):
    path = write_clip(tmp_path, seed=5)
    store = RelevanceStore(tmp_path / "store.sqlite")
    options = {"k": 4, "store": store, "sampler_options": {"pulls": 20}}
    first, second = (select_keyframes(path, query=query, **options) for query in ("a dog", "a cup of coffee"))
    assert first.row.pulled_frames == second.row.pulled_frames
    assert (first.row.forwards, second.row.forwards) == (20, 0)


def test_a_selection_has_a_length_and_gives_frame_time_and_relevance(selection):
    assert len(selection) == 4
    assert [keyframe.frame for keyframe in selection] == list(selection.keyframes)
    assert selection[-1] == (selection.keyframes[-1], selection.times[-1], selection.relevance[-1])


def test_keyframes_are_written_with_their_times_in_name_and_exif_or_not_at_all(clip, tmp_path):
    selection = select_keyframes(clip, k=3, sampler="uniform")
    paths = selection.save_frames(tmp_path / "frames", suffix=".png")
    assert [path.name for path in paths] == [
        "bars_0h00m00.000s_0.png", "bars_0h00m02.900s_29.png", "bars_0h00m05.900s_59.png"
    ]  # fmt: skip
    for path, image in zip(paths, selection.images(), strict=True):
        with Image.open(path) as written:
            assert np.array_equal(np.asarray(written), np.asarray(image))
            assert written.getexif()[0x010E].startswith("bars.mp4, ")
    with pytest.raises(errors.InvalidInput, match=r"suffix must be \.jpg or \.png, got '\.nothing'"):
        selection.save_frames(tmp_path / "other", suffix=".nothing")
    assert not (tmp_path / "other").exists()


def test_messages_reach_a_real_client_with_the_keyframes_and_their_times(clip):
    openai = pytest.importorskip("openai", reason="the extra llm is not installed")
    from tests.support.keyframes.chat_server import ChatServer

    selection = select_keyframes(clip, query="a bar", k=2, sampler="uniform")
    bodies = []
    with ChatServer(reply_to=lambda body: bodies.append(body) or ("here", {})) as server:
        client = openai.OpenAI(base_url=server.url, api_key="any")
        reply = client.chat.completions.create(model="m", messages=selection.messages("openai", "Where is it?"))
    assert reply.choices[0].message.content == "here"
    texts = [part.get("text") for part in bodies[0]["messages"][0]["content"]]
    assert texts == ["[0.0 s]", None, "[5.9 s]", None, "Where is it?"]
    pictures = [part for part in selection.messages("transformers")[0]["content"] if part["type"] == "image"]
    expected = [np.asarray(image) for image in selection.images()]
    assert all(np.array_equal(np.asarray(a["image"]), b) for a, b in zip(pictures, expected, strict=True))
    with pytest.raises(errors.InvalidInput, match="openai or transformers"):
        selection.messages("other")


def test_without_a_query_the_summary_is_even_and_shows_no_picture_twice():
    scenes = np.random.default_rng(5).integers(0, 256, (4, 48, 64, 3), dtype=np.uint8)
    pictures = np.repeat(scenes, [60, 20, 12, 8], axis=0)
    even = select_keyframes(pictures, k=4, fps=10, sampler_options={"distinct": False})
    summary = select_keyframes(pictures, k=4, fps=10)
    assert (even.sampler, summary.sampler) == ("uniform", "uniform")
    assert len({pictures[frame].tobytes() for frame in even.keyframes}) == 3
    assert len({pictures[frame].tobytes() for frame in summary.keyframes}) == 4
    assert summary.facts["twins_replaced"] == 1


def write_late_clip(path):
    """Write 20 frames of which the second ten come eight seconds late."""
    with ClipWriter(path, width=64, height=48, fps=10) as writer:
        for number in range(20):
            writer.write(picture(number), ticks=number + 80 * (number >= 10))
    return path


def test_the_sheet_of_a_variable_rate_draws_pulls_at_the_times_of_the_file(tmp_path):
    path = write_late_clip(tmp_path / "late.mp4")
    selection = select_keyframes(path, query="a bar", k=2, encoder="offline:size=64")
    bars = selection.sheet.axes[-1].collections[0].get_segments()
    expected = [number / 10 + 8 * (number >= 10) for number in range(20)]
    assert [bar[0][0] for bar in bars] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("sampler", ["maxinfo", "ktv"])
def test_a_sampler_that_reads_no_query_needs_none_and_chooses_as_with_one(clip, sampler):
    summary = select_keyframes(clip, k=3, sampler=sampler, encoder="offline")
    assert summary.keyframes == select_keyframes(clip, query="a cat", k=3, sampler=sampler, encoder="offline").keyframes
    assert (summary.n_pulls > 0, summary.warning) == (True, "")
    with pytest.raises(errors.InvalidInput, match="sampler 'topk' needs a query"):
        select_keyframes(clip, k=3, sampler="topk")


def test_more_keyframes_than_anybody_looks_at_are_chosen_but_not_drawn(tmp_path):
    large = select_keyframes(np.zeros((600, 8, 8, 3), np.uint8), query="<b>", k=10**6, fps=1, sampler="uniform")
    assert len(large.keyframes) == 600
    assert (
        large._repr_html_()
        == "<code>&lt;array: 600 keyframes for &#x27;&lt;b&gt;&#x27;, uniform, 0 of 600 frames scored&gt;</code>"
    )
    with pytest.raises(errors.InvalidInput, match="at most 512 keyframes, not 600"):
        large.save_sheet(tmp_path / "sheet.png")
    assert not list(tmp_path.iterdir())
    arguments = ["select", "absent.mp4", "--query", "a", "-k", "513", "--sheet", str(tmp_path / "sheet.png")]
    assert "at most 512" in str(CliRunner().invoke(app, arguments).exception)  # before the video is looked at


def test_pictures_of_another_file_in_the_videos_place_are_refused(tmp_path):
    clip = write_clip(tmp_path, seed=1)
    selection = select_keyframes(clip, query="a bar", k=2, sampler="uniform")
    assert len(list(selection.images())) == 2
    clip.with_name("other.mp4").write_bytes(clip.read_bytes())
    os.replace(clip.with_name("other.mp4"), clip)
    with pytest.raises(errors.VideoError, match="replaced or changed after its keyframes were chosen"):
        list(selection.images())


def test_a_selection_without_keyframes_shows_its_timeline(tmp_path):
    empty = select_keyframes(np.zeros((4, 8, 8, 3), np.uint8), query="a", fps=1, sampler="blind")
    assert empty._repr_html_().startswith("<img ")
    with Image.open(empty.save_sheet(tmp_path / "sheet.png")) as sheet:
        assert sheet.width > 800


def test_a_sampler_that_would_choose_no_frame_is_refused_before_any_is_scored():
    pictures = np.zeros((120, 8, 8, 3), np.uint8)
    with pytest.raises(errors.InvalidInput, match=r"aks would choose no frame: .*max_depth=3 or less, or k=32 or more"):
        select_keyframes(pictures, query="a dog", k=8, fps=1, sampler="aks", encoder="offline")


def test_several_queries_share_the_frames_of_a_video_and_choose_as_alone(tmp_path):
    clip = write_clip(tmp_path, seed=1)
    queries = ["a bar", "grey", "a dog"]
    selections = select_keyframes(clip, query=queries, k=4)
    assert [item.query for item in selections] == queries
    assert sum(item.row.forwards for item in selections) == 60
    assert [item.keyframes for item in selections] == [select_keyframes(clip, query=q, k=4).keyframes for q in queries]


def test_lists_give_lists_in_their_order(clip):
    selections = select_keyframes([clip, str(clip)], query=["a bar", "grey"], k=2, sampler="uniform")
    assert [[entry.query for entry in one_video] for one_video in selections] == [["a bar", "grey"]] * 2
    assert select_keyframes([], query="a bar") == [] == select_keyframes(clip, query=[])


def test_a_folder_of_pictures_and_an_array_are_videos(tmp_path):
    pictures = np.stack([picture(number) for number in range(12)])
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / f"frame{number}.png")  # frame10 comes after frame9
    (tmp_path / "notes.txt").touch()
    of_folder = select_keyframes(tmp_path, query="a bar", k=3, fps=2)
    of_array = select_keyframes(pictures, query="a bar", k=3, fps=2)
    assert of_folder.pulled_relevance.tolist() == of_array.pulled_relevance.tolist()
    assert of_folder.times == tuple(frame / 2 for frame in of_folder.keyframes)
    for frame, image in zip(of_folder.keyframes, of_folder.images(), strict=True):
        assert np.array_equal(np.asarray(image), pictures[frame])


def test_a_share_and_seconds_set_the_number_of_scored_frames(clip):
    assert select_keyframes(clip, query="a bar", k=4, share=np.float32(0.25)).n_pulls == 15
    assert select_keyframes(clip, query="a bar", k=4, sampler="even_topk", share=0.25).n_pulls == 15
    timed = select_keyframes(clip, query="a bar", k=4, seconds=0.05)
    assert timed.options["pulls"] == timed.n_pulls < 60


def test_a_numpy_count_and_a_store_by_name_are_taken(tmp_path):
    clip = write_clip(tmp_path, seed=2)
    first = select_keyframes(clip, query="a bar", k=np.int64(4), store=tmp_path / "s.sqlite")
    second = select_keyframes(str(clip), query="a bar", k=4, store=str(tmp_path / "s.sqlite"))
    assert (first.row.forwards, second.row.forwards) == (60, 0)
    assert json.loads(first.to_json())["k"] == 4
    assert second.keyframes == first.keyframes


class WithoutEmbed:
    """What a class that is nearly an encoder has."""

    name, revision = "half", "1"

    def close(self):
        """Close nothing."""


class Bar:
    """Progress that keeps its numbers."""

    def __init__(self):
        self.expected, self.advances = [], []

    def expect(self, n_pulls):
        """Take the number of pulls, before the first."""
        assert not self.advances
        self.expected.append(n_pulls)

    def advance(self, n_pulls):
        """Take the size of a batch."""
        self.advances.append(n_pulls)


def test_progress_is_told_the_expected_pulls_and_then_each_batch(clip):
    select_keyframes(clip, query=["a bar", "noise"], k=4, sampler="topk", encoder="offline", progress=(bar := Bar()))
    # One frame a second of six seconds, for each query.
    assert sum(bar.expected) == sum(bar.advances) == 12


def test_progress_of_a_variable_rate_expects_the_frames_of_the_file(tmp_path):
    path = write_late_clip(tmp_path / "late.mp4")
    select_keyframes(path, query="a bar", k=2, encoder="offline:size=64", progress=(bar := Bar()))
    assert sum(bar.expected) == sum(bar.advances) == 20


WRONG = {
    "k as text": {"k": "8"},
    "half a frame": {"k": 2.5},
    "a list of k": {"k": [4]},
    "no k": {"k": None},
    "k true": {"k": True},
    "k 0": {"k": 0},
    "k below 0": {"k": -3},
    "seed as text": {"seed": "0"},
    "seed 1.5": {"seed": 1.5},
    "seed below 0": {"seed": -1},
    "an empty query": {"query": ""},
    "blanks": {"query": "  "},
    "no query for a sampler that compares": {"query": None, "sampler": "topk"},
    "a number as query": {"query": 8},
    "a number among queries": {"query": ["a", 8]},
    "a lone surrogate": {"query": "\ud800"},
    "an unknown sampler": {"sampler": "focs"},
    "a number as sampler": {"sampler": 7},
    "a class as sampler": {"sampler": type(make_sampler("topk"))},
    "an unknown option": {"sampler": "focus", "sampler_options": {"alpa": 1}},
    "an option of another type": {"sampler": "focus", "sampler_options": {"alpha": "much"}},
    "an option twice": {"sampler": "focus:alpha=0.1", "sampler_options": {"alpha": 0.1}},
    "options of a made sampler": {"sampler": make_sampler("topk"), "sampler_options": {"every_seconds": 1}},
    "an unknown encoder": {"encoder": "offlin"},
    "a number as encoder": {"encoder": 3},
    "options of no encoder": {"encoder_options": {"size": 64}},
    "options of a made encoder": {
        "encoder": make_encoder("recorded", trace=np.ones(60)), "encoder_options": {"device": "cpu"},
    },
    "an unknown option of the encoder": {"encoder": "offline", "encoder_options": {"devise": "cpu"}},
    "a query in another script": {"query": "собака", "encoder": "offline"},
    "a query of ten megabytes": {"query": "a dog " * 1_700_000},
    "an unknown reader": {"backend": "pyaf"},
    "no such file": {"video": "absent.mp4"},
    "a number as video": {"video": 5},
    "no video": {"video": None},
    "a number among videos": {"video": [5]},
    "a folder without pictures": {"video": ".", "fps": 1},
    "a folder without a rate": {"video": "."},
    "an array without a rate": {"video": np.zeros((3, 8, 8, 3), np.uint8)},
    "grey pictures": {"video": np.zeros((3, 8, 8), np.uint8), "fps": 1},
    "pictures of floats": {"video": np.zeros((3, 8, 8, 3)), "fps": 1},
    "no picture in the array": {"video": np.zeros((0, 8, 8, 3), np.uint8), "fps": 1},
    "a rate of 0": {"video": np.zeros((3, 8, 8, 3), np.uint8), "fps": 0},
    "a rate as text": {"video": np.zeros((3, 8, 8, 3), np.uint8), "fps": "1"},
    "a rate for a file": {"fps": 25},
    "a store for pictures": {"video": np.zeros((3, 8, 8, 3), np.uint8), "fps": 1, "store": "s.sqlite"},
    "a folder as store": {"store": "."},
    "a number as store": {"store": 5},
    "a link": {"video": "https://example.com/a.mp4"},
    "a path with a NUL": {"video": "a\0.mp4"},
    "a long path": {"video": "a" * 5000},
    "options of the sampler in a list": {"sampler": "topk", "sampler_options": ["every_seconds=1"]},
    "options of the sampler by number": {"sampler": "topk", "sampler_options": {1: 1}},
    "options of the encoder as text": {"encoder": "offline", "encoder_options": "size=64"},
    "half an encoder": {"encoder": WithoutEmbed()},
    "a class as encoder": {"encoder": type(make_encoder("recorded", trace=np.ones(60)))},
    "no reader": {"backend": None},
    "a function as progress": {"progress": print},
    "endless seconds": {"seconds": np.inf},
    "a share and pulls": {"share": 0.1, "sampler_options": {"pulls": 5}},
    "a share and pulls in the name": {"share": 0.1, "sampler": "even_cover:pulls=5"},
    "a share of 2": {"share": 2.0},
    "a share as text": {"share": "all"},
    "no seconds": {"seconds": 0},
    "a share and seconds": {"share": 0.1, "seconds": 1},
    "seconds of a sampler without pulls": {"sampler": "focus", "seconds": 1},
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line_that_says_what_to_do(clip, tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    arguments = {"video": clip, "query": "a bar", "k": 4, **wrong}
    with pytest.raises(errors.FocusEvalError) as refusal:
        select_keyframes(arguments.pop("video"), **arguments)
    message = str(refusal.value)
    assert "\n" not in message
    assert 0 < len(message) < 400


OTHERS_WRONG = {
    "a run by number": lambda: load_run(5),
    "a sampler by number": lambda: make_sampler(5),
    "no encoder": lambda: make_encoder(None),
    "a video by number": lambda: open_video(5),
    "a text as moment": lambda: recall("a", [1]),
    "a moment that is no time": lambda: recall([1.0], [np.nan]),
    "no sheet": lambda: chosen_without_pulls().save_sheet(None),
    "a sheet of another kind": lambda: chosen_without_pulls().save_sheet("a.xyz"),
    "a folder as sheet": lambda: chosen_without_pulls().save_sheet("."),
}


def chosen_without_pulls():
    return select_keyframes(np.zeros((3, 8, 8, 3), np.uint8), query="a bar", k=2, fps=1, sampler="uniform")


@pytest.mark.parametrize("call", OTHERS_WRONG.values(), ids=OTHERS_WRONG)
def test_wrong_input_of_the_other_functions_is_one_line_too(call):
    with pytest.raises(errors.FocusEvalError) as refusal:
        call()
    assert 0 < len(str(refusal.value)) < 200
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("n_frames", "fps"), [(100.5, 25), (True, 25), ("9", 25), (9, "25"), (9, True), (9, np.nan)])
def test_a_video_has_a_whole_number_of_frames_and_a_rate(n_frames, fps):
    with pytest.raises(errors.InvalidInput, match="must be"):
        VideoInfo(n_frames, fps)


def test_a_picture_of_another_size_or_no_picture_is_named(tmp_path):
    Image.fromarray(picture(0)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(errors.VideoError, match=r"b\.png: not a readable picture"):
        select_keyframes(tmp_path, query="a bar", k=2, fps=1)
    Image.new("RGB", (10, 10)).save(tmp_path / "b.png")
    with pytest.raises(errors.VideoError, match=r"b\.png: 10x10, the first picture has 64x48"):
        select_keyframes(tmp_path, query="a bar", k=2, fps=1)


def test_the_log_of_the_package_tells_of_opened_videos_and_selections(tmp_path, caplog):
    caplog.set_level("DEBUG", logger="focus_eval")
    clip = write_clip(tmp_path, seed=3)
    select_keyframes(clip, query="a bar", k=2, sampler="uniform")
    log_lines = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert ("focus_eval.keyframes.video.scan", "DEBUG", f"{clip}: 60 frames, 10 fps") in log_lines
    assert ("focus_eval", "INFO", f"{clip}: uniform chose 2 keyframes for 'a bar'") in log_lines


def test_nothing_of_the_log_is_printed_by_itself():
    code = "import logging, focus_eval; logging.getLogger('focus_eval.keyframes.pipeline').warning('a failed question')"
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=True).stderr == b""


def test_the_store_keeps_decoders_apart(clip, tmp_path):
    store = RelevanceStore(tmp_path / "store.sqlite")
    select_keyframes(clip, query="a bar", k=2, sampler="topk", encoder="offline:size=64", store=store.path)
    with sqlite3.connect(store.path) as connection:
        (key,) = {row[0] for row in connection.execute("SELECT video FROM series")}
    assert key == f"{store.video_fingerprint(clip)} libavcodec {av.library_versions['libavcodec'][0]}"
