"""The option `skip_damaged` chooses among the frames of a damaged video that decode, and changes no whole video."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

from focus_eval import Encoder, KeyframeSelector, errors, open_video, select_keyframes
from focus_eval.keyframes.video.verification import verify_folder
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.damage import blank_out
from tests.support.keyframes.many_commands import run_commands

N_FRAMES = 90


class Greys(Encoder):
    """Relevance is the mean grey level, which needs the pictures."""

    name, revision, stores_embeddings, needs_gpu = "greys", "1", True, False

    def embed(self, frames):
        return frames.mean(axis=(1, 2, 3), dtype=np.float64).astype(np.float32)[:, None]

    def relevance(self, features, query):
        return features[:, 0].astype(np.float64) / 255


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole clip and the same with zeros in its middle, of an even and of a varying rate."""
    folder = tmp_path_factory.mktemp("clips")
    for name, ticks in {
        "even": None,
        "varying": [4 * n if n < 45 else 4 * n + 9 * (n - 44) for n in range(N_FRAMES)],
    }.items():
        rate = {} if ticks is None else {"ticks": ticks}
        whole = write_clip(folder / f"{name}.mp4", n_frames=N_FRAMES, codec="libx264", fps=25, gop=15, **rate)
        blank_out(whole, folder / f"{name}_damaged.mp4", start=0.4, stop=0.6)
    return folder


def damaged_frames(path):
    with open_video(path) as video:
        return {*video.damaged_frames().tolist()}


def choose(path, sampler, *, k=8, query="a", **options):
    return select_keyframes(path, query=query, k=k, sampler=sampler, encoder=Greys(), **options)


def check_pictures(selection, whole):
    """The pictures and times are those that the frames of these numbers have in the undamaged file."""
    with open_video(whole) as video:
        expected = video.read(list(selection.keyframes))
        assert selection.times == pytest.approx(video.frame_times(list(selection.keyframes)).tolist())
    for picture, pixels in zip(selection.images(), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(picture), pixels)


@pytest.mark.parametrize("name", ["even", "varying"])
@pytest.mark.parametrize(
    "sampler", ["uniform", "uniform:distinct=false", "topk:every_seconds=0.04", "focus", "even_cover"]
)
def test_keyframes_are_of_frames_that_decode_and_have_their_own_numbers(folder, sampler, name):
    whole, damaged = folder / f"{name}.mp4", folder / f"{name}_damaged.mp4"
    lost_frames = damaged_frames(damaged)
    assert 20 < len(lost_frames) < 40
    with pytest.raises(
        errors.DamagedFrame, match=r"^.*_damaged.mp4: frame \d+ asked, but .* --skip-damaged, skip_damaged=True"
    ):
        [*choose(damaged, sampler, k=24).images()]
    selection = choose(damaged, sampler, k=24, skip_damaged=True)
    assert selection.keyframes == choose(damaged, sampler, k=24, skip_damaged=True).keyframes
    assert len({*selection.keyframes}) == len(selection.keyframes) > 3
    assert not lost_frames.intersection(selection.keyframes)
    assert not lost_frames.intersection(selection.pulled_frames.tolist())
    check_pictures(selection, whole)
    assert selection.facts["damaged_frames"] == [len(lost_frames), N_FRAMES]
    assert f"{len(lost_frames)} of 90 frames cannot be decoded: the file is damaged." in selection.warning
    assert selection.row.selection_id == choose(whole, sampler, k=24).row.selection_id


def test_frames_on_both_sides_of_the_damage_count_alike(folder):
    keyframes = choose(folder / "even_damaged.mp4", "uniform:distinct=false", skip_damaged=True).keyframes
    lost_frames = damaged_frames(folder / "even_damaged.mp4")
    places = np.searchsorted([n for n in range(N_FRAMES) if n not in lost_frames], keyframes)
    assert np.ptp(np.diff(places)) <= 1


def vars_of(selection):
    return selection.keyframes, selection.facts, selection.warning


def test_whole_videos_and_damage_that_nobody_meets_change_nothing(folder):
    for path, stretch in ((folder / "even.mp4", {}), (folder / "even_damaged.mp4", {"end_seconds": 0.8})):
        plain_choice, option_choice = (
            choose(path, "even_cover", k=4, skip_damaged=skip, **stretch) for skip in (False, True)
        )
        assert vars_of(plain_choice) == vars_of(option_choice)
        assert "damaged_frames" not in option_choice.facts


def test_a_stretch_counts_its_own_frames_and_one_without_a_whole_frame_is_an_error(folder):
    damaged = folder / "even_damaged.mp4"
    lost_frames = damaged_frames(damaged)
    selection = choose(damaged, "uniform:distinct=false", k=90, start_seconds=1.0, end_seconds=3.0, skip_damaged=True)
    assert selection.facts["damaged_frames"] == [len(lost_frames), 50]
    assert [*selection.keyframes] == [n for n in range(25, 75) if n not in lost_frames]
    with pytest.raises(errors.InvalidInput, match="topk would choose no frame"):
        choose(damaged, "topk", start_seconds=1.0, end_seconds=3.0, skip_damaged=True)
    with pytest.raises(errors.VideoError, match="no frame of it can be decoded"):
        choose(
            damaged,
            "uniform",
            start_seconds=(min(lost_frames) + 0.5) / 25,
            end_seconds=max(lost_frames) / 25,
            skip_damaged=True,
        )


def test_queries_of_one_video_get_what_each_gets_alone(folder):
    selector = KeyframeSelector(k=4, sampler="focus", encoder=Greys(), skip_damaged=True)
    joint_selections = selector.select(folder / "even_damaged.mp4", ["a", "b", "c"])
    single_selections = [selector.select(folder / "even_damaged.mp4", query) for query in "abc"]
    assert [selection.keyframes for selection in joint_selections] == [
        selection.keyframes for selection in single_selections
    ]
    assert all("damaged_frames" in selection.facts for selection in joint_selections)


def test_seconds_of_scoring_are_measured_on_frames_that_decode(folder):
    options = {"sampler": "even_cover", "k": 4, "seconds": 30.0}
    with pytest.raises(errors.DamagedFrame):
        choose(folder / "even_damaged.mp4", **options)
    selection = choose(folder / "even_damaged.mp4", **options, skip_damaged=True)
    assert not damaged_frames(folder / "even_damaged.mp4").intersection(selection.keyframes)


def test_pictures_that_cannot_be_read_are_left_out_too(tmp_path):
    for number in range(12):
        Image.fromarray(np.full((32, 32, 3), 20 * number, np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "5.png").write_bytes(b"no picture")
    with pytest.raises(errors.DamagedFrame, match=r"5\.png: not a readable picture .* --skip-damaged"):
        choose(tmp_path, "topk", k=3, fps=1.0)
    selection = choose(tmp_path, "topk:distinct=false", k=12, fps=1.0, skip_damaged=True)
    assert [*selection.keyframes] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_verified_video_is_not_decoded_again(folder, tmp_path):
    path = tmp_path / "clip.mp4"
    path.write_bytes((folder / "even_damaged.mp4").read_bytes())
    lost_frames = damaged_frames(path)
    verify_folder(tmp_path)
    with open_video(path) as video:
        assert {*video.damaged_frames().tolist()} == lost_frames
        assert video.n_decoded == 0


def test_the_command_names_the_option_and_takes_it(folder):
    damaged, whole = folder / "even_damaged.mp4", folder / "even.mp4"
    options = ["--sampler", "uniform", "-k", "30"]
    refused_run, single_run, joint_run = run_commands(
        [
            ["select", str(damaged), *options],
            ["select", str(damaged), *options, "--skip-damaged", "--json"],
            ["select", str(damaged), str(whole), *options, "--skip-damaged"],
        ]
    )
    assert refused_run.code == 2
    assert "--skip-damaged" in refused_run.err
    record = json.loads(single_run.out)
    n_lost = len(damaged_frames(damaged))
    assert record["facts"]["damaged_frames"] == [n_lost, N_FRAMES]
    assert f"{n_lost} of 90 frames cannot be decoded" in record["warning"]
    assert f"even_damaged.mp4: {n_lost} of 90 frames" in " ".join(joint_run.out.split())
    assert (single_run.code, joint_run.code) == (0, 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_sheet_goes_on_with_the_option_and_does_nothing_twice(folder, tmp_path, workers):
    rows = [("even.mp4", "a"), ("even_damaged.mp4", "b"), ("varying.mp4", "c"), ("even_damaged.mp4", "d")]
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([("video", "query"), *rows])
    arguments = [
        "select",
        "--from",
        str(tmp_path / "rows.csv"),
        "--videos",
        str(folder),
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--no-sheets", "--sampler", "uniform", "-k", "30", "--workers", workers]
    first_run, second_run = run_commands([arguments, [*arguments, "--skip-damaged"]])
    assert (first_run.code, second_run.code) == (2, 0)
    assert first_run.err.count("--skip-damaged") == 2
    assert "2 rows of 4 finished by an earlier start" in second_run.out
    with open(tmp_path / "out" / "keyframes.csv", newline="") as file:
        lines = [*csv.DictReader(file)]
    lost_frames = damaged_frames(folder / "even_damaged.mp4")
    warning = f"{len(lost_frames)} of 90 frames cannot be decoded"
    assert [(line["error"], line["warning"].startswith(warning)) for line in lines] == [
        ("", False), ("", True), ("", False), ("", True)
    ]  # fmt: skip
    assert not lost_frames.intersection(map(int, lines[1]["frames"].split()))
    assert len([*(tmp_path / "out" / lines[1]["pictures"]).glob("*.jpg")]) == 30
    records = [json.loads(line) for line in (tmp_path / "out" / "selections" / "rows" / "rows.jsonl").open()]
    assert sorted(record["question_id"] for record in records) == ["1", "2", "3", "4"]
    assert [record["facts"].get("damaged_frames") for record in records[2:]] == [[len(lost_frames), N_FRAMES]] * 2
