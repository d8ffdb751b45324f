"""An option that would have no effect is refused in one line that names the fix."""

from __future__ import annotations

import json

import pytest

from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.many_commands import run_commands

# Each command line -> what its one line of error says.
REFUSED = {
    "select clip.mp4 --encoder clip": "--encoder has no effect on sampler 'uniform', which scores no frame: say",
    "select clip.mp4 --query x --sampler random -e device=cpu": "--encoder has no effect on sampler 'random', which",
    "select clip.mp4 --subtitles-encoding cp1252": "--subtitles-encoding has no effect without --subtitles: give both,",
    "select clip.mp4 --verbose --json": "--verbose has no effect beside --json, --quiet and --out -: leave it out",
    "select clip.mp4 a dog": "a: no such file; what to look for is named by --query 'a dog'",
    "select --from rows.csv --out kept --subtitles-encoding cp1252": "--subtitles-encoding: not with --from, whose",
    "ask clip.mp4 Who? --llm gpt-4o-mini": "unknown llm 'gpt-4o-mini'; known: chat, local, scripted; one of a",
    "ask clip.mp4 Who? --llm scripted --out kept": "--out has no effect without a sheet: name one with --from, or",
    "ask clip.mp4 Who? --llm scripted --subtitles-encoding cp1252": "--subtitles-encoding has no effect without",
    "run alpha --address auto": "--address has no effect without --engine ray: give both, or neither",
    "list encoders --minutes 5": "--minutes has no effect but in: focus-eval list samplers",
    "list -k 5": "-k has no effect but in: focus-eval list samplers",
    "list tasks --install-path --json": "--json has no effect beside --copy and --install-path: leave it out",
    "videos verify . --annotations a.json": "--annotations has no effect but in: focus-eval videos rates",
    "videos index . --jobs 2": "--jobs has no effect but in: focus-eval videos verify",
    "report runs --baseline topk": "--baseline has no effect on a folder of runs: name one of them, e.g. runs/a",
    "report runs/a --videos . --no-html": "--videos has no effect with --no-html: leave one of them out",
    "report runs/a --link-thumbnails": "--link-thumbnails has no effect without --videos: give both, or neither",
    "pack runs/a.zip --undo --pictures": "--pictures has no effect beside --undo, which unpacks all: leave it out",
    "compare-samplers topk --relevance runs/a --world smooth": "--world has no effect beside --relevance, which has",
    "audit runs/a --benchmark mlvu": "--benchmark has no effect without --annotations: give both, or neither",
    "evidence runs/a --policy else:uniform --distance 1": "--distance has no effect beside --policy, which counts",
    "import lmms logs --out made --scenes s.csv": "--scenes has no effect on the format lmms: leave it out",
    "import relevance s.json f.json --out made --unit seconds": "--unit has no effect on the format relevance: leave",
    "import qca s.json f.json --out made": "the argument frames has no effect but in: focus-eval import relevance",
    "import qca s.json --out made --frames-field indices": "--frames-field has no effect but in: focus-eval import",
    "import qca s.json --out made --allow-missing": "--allow-missing has no effect without --annotations: give both,",
    "import qca s.json --out made.parquet --allow-outside": "--allow-outside has no effect without --annotations: give",
    "import qca s.json --out made.parquet --model m": "--model has no effect on a file of frames alone: give --out a",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a clip, a sheet and two empty runs."""
    folder = tmp_path_factory.mktemp("idle")
    write_clip(folder / "clip.mp4", n_frames=10)
    (folder / "rows.csv").write_text("video,query\nclip.mp4,a dog\n")
    for name in "ab":
        (folder / "runs" / name / "selections").mkdir(parents=True)
        (folder / "runs" / name / "run.json").write_text(json.dumps({}))
    return folder


@pytest.mark.parametrize("line", REFUSED)
def test_an_option_without_effect_is_refused(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (ran,) = run_commands([line.split()])
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.out + ran.err
    assert ran.err.startswith(f"focus-eval: {REFUSED[line]}"), ran.err
    assert ran.out == ""
