"""The commands of README and docs run as they stand there, in one process, in a reader's folder of public files.

A command that needs weights, a service or data of a hub says so in a line. What takes minutes or a cluster is run
elsewhere, and listed here.

With INSTALL and INSTALL_PYTHON the commands run in another environment, which scripts/checks/installs.py makes: those
that docs/quickstart.md names for that install must work (in the full one all), others may name an extra to install.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.keyframes import many_commands
from tests.support.keyframes.clips import write_clip

from .conftest import SHARED
from .pages import PAGES, ROOT, blocks, shell_lines, text_of

# What a command begins with -> who runs it.
ELSEWHERE = {
    "demo": "tests/bench/demo",
    "plan table.yaml": "tests/bench/matrix/test_your_matrix.py",
    "run table.yaml": "tests/bench/matrix/test_your_matrix.py",
    "report results/runs/table": "tests/bench/matrix/test_your_matrix.py",
    "simulate": "tests/lab",
    "compare-samplers": "tests/lab/test_compare_samplers.py",
    "status results/runs/demo": "tests/bench/commands/test_matrix.py",
    "report results/runs/demo": "tests/bench/commands/test_report_commands.py",
    "run demo_kinds": "tests/bench/demo",
    "run full_comparison --engine ray": "tests/rehearsal/__main__.py",
    "run alpha --engine ray": "tests/rehearsal/__main__.py",
    "status results/runs/alpha": "tests/rehearsal/__main__.py",
    "report results/runs/alpha": "tests/rehearsal/__main__.py",
    "pack": "tests/bench/rows/test_packed.py",
    "import relevance AKS": "tests/external/imports",
    "evidence results/runs/field": "tests/external/test_evidence.py",
    "predict": "research/tests/test_predict.py",
    "check bisect_peaks": "tests/lab/test_new_sampler.py",
}
# What it begins with -> its exit code and what it says: without weights, data or a service; audit notes something.
LACKING = {
    "audit": (0, "fewer distinct frames than K"),
    "plan": (1, "missing"),
    "run alpha": (1, "to start all the same: --no-preflight"),
    "ask": (2, "cannot be reached"),
    "select video.mp4": (2, "is not in the hub's cache"),
    "select clip.mp4": (2, "cannot be reached"),
}


# In another install these run too.
SHORTENED = {
    "simulate": ("--limit", "1", "--out", "simulated"),
    "compare-samplers focus topk even_diverse even_cover": ("--videos", "5", "--out", "compared"),
}
INSTALL, PYTHON = os.environ.get("INSTALL", ""), os.environ.get("INSTALL_PYTHON", sys.executable)
# What only public logs and annotations can answer.
HAS_DATA = (SHARED / "data").exists()
READ_DATA = ("import", "audit", "evidence", "predict", "recall", "report", "registry verify aks")


def commands():
    lines = dict.fromkeys(
        line.words[1:] for page in PAGES for line in shell_lines(page) if line.program == "focus-eval"
    )
    return {words: next((home for start, home in ELSEWHERE.items() if begins(words, start)), None) for words in lines}


def begins(words, start):
    return " ".join(words).startswith(start) and not (start == "check bisect_peaks" and ".py:" in words[1])


# What is imported on one page is looked at on another.
COMMANDS_RUN_HERE = sorted(
    (words for words, home in commands().items() if home is None), key=lambda words: words[0] != "import"
)


if INSTALL:
    COMMANDS_RUN_HERE += [words for words in commands() if " ".join(words) in SHORTENED]


def needs_more(words):
    """Return True if the install that is tried need not have what a command needs: it may name an extra."""
    return INSTALL not in ("", "full") and (words[0] not in promised_commands() or begins(words, "select video.mp4"))


def promised_commands():
    """Return the commands that the quickstart's table names for the install that is tried, plain or offline."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|.*GB \|$", text_of(ROOT / "docs/quickstart.md"), re.MULTILINE)
    by_install = {"plain" if install == "`pip install .`" else "offline": words for words, install in rows[1:]}
    installs = ("plain", "offline")[: 1 + (INSTALL == "offline")]
    return {words.split()[0] for name in installs for words in re.findall(r"`([^`]+)`", by_install[name])}


# Where the reader keeps public logs.
PLACES = (
    ("logs", "lvb_uniform"),
    ("logs", "lvb_aks"),
    ("their_log", "lvb_uniform"),
    ("my_log", "lvb_aks"),
    ("theirs", "lvb_aks"),
)


def unpacked(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, shared):
    """A folder with all that the pages' commands need.

    Clips, the samplers of the pages, and the benchmarks' annotations, public selections and logs where they are here.
    """
    workplace = tmp_path_factory.mktemp("reader")
    if HAS_DATA or not INSTALL:
        copy_data(workplace, shared)
    shutil.copy(ROOT / "configs/machines/eight_h100.yaml", workplace / "node.yaml")
    (workplace / "data/videos").mkdir(parents=True)
    clip = write_clip(workplace / "data/videos/one.mp4", n_frames=300, width=160, height=120)
    for name in ("holiday", "bikes", "talk", "video", "clip"):
        shutil.copy(clip, workplace / f"{name}.mp4")
    (workplace / "rows.csv").write_text("video,query\nholiday.mp4,a dog\ntalk.mp4,a person\n")
    for code in (code for page in PAGES for code in blocks(page, "python")):
        for name, file in (("Mine", "mine.py"), ("BisectPeaks", "bisect_peaks.py")):
            if f"class {name}(" in code:
                (workplace / file).write_text(code, encoding="utf-8")
    shutil.copytree(ROOT / "docs/examples", workplace / "docs/examples")
    return workplace


TABLE = "lvb_qwen2_5_vl_7b_32_frames_22_runs.parquet"


def write_fewer_runs(source, target):
    """Write six of the table's 22 runs: uniform, AKS and four of the scene methods, which differ in settings only."""
    import pyarrow.compute
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(source)
    runs = sorted(set(table["run"].to_pylist()))  # the first is uniform, the second AKS
    kept = pyarrow.array([*runs[:2], *runs[2::5]])
    pyarrow.parquet.write_table(table.filter(pyarrow.compute.is_in(table["run"], value_set=kept)), target)


def copy_data(workplace, shared):
    """Copy public annotations, selections and logs to the names that the pages give them."""
    data, logs = shared("data"), shared("data/field/lmms_logs")
    for path in [*data.iterdir(), *shared("data/field/selections").iterdir(), *logs.glob("*.parquet")]:
        if path.is_file():
            unpacked(path, workplace / path.name.removesuffix(".gz"))
    write_fewer_runs(logs / TABLE, workplace / TABLE)
    unpacked(data / "field/evidence/lvbench_video_info.meta.jsonl.gz", workplace / "video_info.meta.jsonl")
    for place, run in PLACES:
        for path in (logs / run).iterdir():
            unpacked(path, workplace / place / run / path.name.removesuffix(".gz"))
    for path in workplace.glob("aks_*.json"):
        shutil.copy(path, workplace / "theirs")
    shutil.copy(workplace / "aks_lvb_32.json", workplace / "mine.json")
    shutil.copy(workplace / "aks_longvideobench_blip_64.json", workplace / "selection.json")


@pytest.fixture(scope="module")
def ran(folder):
    """The outcome of each command of the pages, by its words.

    NAME, FOLDER and `mine` are replaced by the name of a run that was imported before.
    """
    commands_to_run = [
        [re.sub(r"\bNAME$|\bFOLDER$|(?<=runs/)mine$", "theirs", word) for word in words]
        + [*(SHORTENED.get(" ".join(words), ()) if INSTALL else ())]
        for words in COMMANDS_RUN_HERE
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "OPENAI", "FOCUS"))}
    overrides = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "COLUMNS": "200"}
    if not INSTALL:
        overrides["PYTHONPATH"] = str(ROOT)
    service = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    subprocess.run(
        [PYTHON, *(["-I"] if INSTALL else []), many_commands.__file__, "ran.jsonl"],
        input=json.dumps(commands_to_run), text=True, cwd=folder, env={**environment, **overrides, **service},
        check=True, capture_output=True,
    )  # fmt: skip
    lines = (folder / "ran.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(zip(COMMANDS_RUN_HERE, map(json.loads, lines), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS_RUN_HERE, ids=" ".join)
def test_a_command_of_a_page_does_what_it_says(ran, words):
    if INSTALL and not HAS_DATA and begins(words, READ_DATA):
        pytest.skip("the public data is not beside this checkout")
    came_to = ran[words]
    lacking = next((lacking for start, lacking in LACKING.items() if begins(words, start)), None)
    code, message = lacking or (0, "")
    printed = " ".join((came_to["out"] + came_to["err"]).split())
    assert "Traceback" not in printed
    if came_to["code"] == 2 and "pip install" in came_to["err"] and needs_more(words):
        assert many_commands.without_progress(came_to["err"]).count("\n") == 1, came_to["err"]
        return
    assert (came_to["code"], message in printed) == (code, True), printed[-1500:]


def test_what_runs_elsewhere_is_there():
    assert [page for page in ELSEWHERE.values() if not (ROOT / page).exists()] == []
    assert {start for start in ELSEWHERE if not any(begins(words, start) for words in commands())} == set()
