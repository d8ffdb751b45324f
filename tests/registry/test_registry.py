"""Cards, statuses, tiers and pages: does every figure say where it comes from, and does deriving it again give it?"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError, InvalidInput, UnknownName
from focus_eval.keyframes.samplers.registry import SAMPLERS
from focus_eval.registry.cards import COMPUTED, DERIVED, REPLAYED, read_card, read_registry
from focus_eval.registry.figures import (
    FIGURES,
    Figure,
    ranked,
    read_figures,
    simulated_figures,
    tiers_of,
    videos_of,
    write_figures,
)
from focus_eval.registry.pages import accuracy_table, latest, leaderboards
from support.external.leaderboard import DIFFERENCES, RECALLS

ROOT = Path(__file__).resolve().parents[2]
N_VIDEOS = 12


def called(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, FocusEvalError):
        raise result.exception
    return result


def chosen_json(frames):
    return json.dumps({f"q{number}": frames for number in range(N_VIDEOS)})


def write_card(place, name, **fields):
    file = place / "samplers" / name / "card.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"title": name.title(), "authors": "Someone", "licence": "MIT", **fields}
    file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items()))
    return file


def write_evidence(place):
    """Write an annotation with one moment in each of `N_VIDEOS` videos of 400 s, and the rates of their files."""
    rows = [
        {
            "id": f"q{number}", "question": "What?", "candidates": ["this", "that"], "correct_choice": 0,
            "position": [24 * (100 + number)], "duration": 400.0, "duration_group": 600, "video_path": f"v{number}.mp4",
            "question_category": "S2E", "topic_category": "A", "level": "L1",
        }
        for number in range(N_VIDEOS)
    ]  # fmt: skip
    (place / "annotation.json").write_text(json.dumps(rows))
    (place / "rates.csv").write_text("id,duration_s,fps\n" + "".join(f"q{n},400,10\n" for n in range(N_VIDEOS)))


@pytest.fixture
def registry_place(tmp_path):
    """A registry of two published selections, one near the evidence of every question and one far, and its files."""
    write_evidence(tmp_path)
    for name, frames in (("near", [1000, 1060, 1110]), ("far", [0, 20, 3900])):
        (tmp_path / f"{name}.json").write_text(chosen_json(frames))
        digest = hashlib.sha256((tmp_path / f"{name}.json").read_bytes()).hexdigest()
        item = {"benchmark": "longvideobench", "k": 3, "format": "qca", "file": f"{name}.json", "sha256": digest}
        write_card(tmp_path / "registry", name, selections=[item])
    return tmp_path


def registry_options(registry_place):
    annotations, rates = registry_place / "annotation.json", registry_place / "rates.csv"
    return ["--registry", registry_place / "registry", "--files", registry_place, "--annotations", annotations,
            "--rates", rates, "--no-simulate"]  # fmt: skip


def test_every_sampler_of_the_package_has_a_card_and_every_card_reads():
    cards = read_registry(ROOT / "registry")
    assert {card.sampler for card in cards.values() if card.sampler} == set(SAMPLERS.names())
    assert len([item for card in cards.values() for item in card.selections]) >= 15
    assert cards["mdp3"].needs_text == "embeddings, encoder"
    assert cards["toolmerge"].needs_text.startswith("LLM planner")


def test_build_gives_tiers_and_pages_and_verify_derives_every_figure_again(registry_place):
    printed = called("registry", "build", *registry_options(registry_place), "--out", registry_place / "site").output
    assert "index.html: 2 samplers" in printed
    figures = read_figures(registry_place / "registry")
    within_5 = {item.name: item for item in figures if item.measure == "within 5 s"}
    assert {name: (item.tier, item.status) for name, item in within_5.items()} == {
        "Near": ("1", REPLAYED), "Far": ("2", REPLAYED), "uniform": ("2", DERIVED),
    }  # fmt: skip
    assert float(within_5["Near"].value) == 1.0
    assert all(item.status and item.questions == str(N_VIDEOS) for item in figures)
    page = (registry_place / "site" / "index.html").read_text()
    assert REPLAYED in page
    assert "MIT" in page
    assert page.count("Near") >= 2
    result = called("registry", "verify", *registry_options(registry_place))
    assert f"{len(figures)} figures derived again as recorded, 0 differ" in result.output
    assert result.exit_code == 0


def test_verify_names_a_figure_that_was_changed_and_a_file_that_is_not_at_hand(registry_place):
    called("registry", "build", *registry_options(registry_place), "--out", registry_place / "site")
    file = registry_place / "registry" / "figures.csv"
    line = "Near,1,longvideobench,3,within 5 s,"
    file.write_text(file.read_text().replace(f"{line}1.0000", f"{line}0.9000"))
    result = called("registry", "verify", "near", *registry_options(registry_place))
    assert result.exit_code == 1
    assert "Near, longvideobench, K = 3, within 5 s: is recorded as 0.9000" in result.output
    (registry_place / "far.json").unlink()
    assert (
        "Far, longvideobench, K = 3: not at hand, far.json"
        in called("registry", "verify", *registry_options(registry_place)).output
    )
    with pytest.raises(UnknownName, match="did you mean 'near'"):
        called("registry", "verify", "neer", *registry_options(registry_place))


def test_verify_compares_tiers_only_where_every_file_is_at_hand(registry_place):
    called("registry", "build", *registry_options(registry_place), "--out", registry_place / "site")
    (registry_place / "near.json").unlink()
    result = called("registry", "verify", "far", *registry_options(registry_place))
    assert (result.exit_code, "0 differ" in result.output) == (0, True), result.output
    assert "tiers of longvideobench, K = 3: not all of its files are at hand" in result.output
    built = called("registry", "build", *registry_options(registry_place), "--out", registry_place / "site").output
    assert "longvideobench, K = 3: tiers among the files at hand alone" in built


def test_a_page_that_cannot_be_written_is_refused_before_a_figure_is_derived(registry_place):
    files = {path: path.read_bytes() for path in registry_place.rglob("*") if path.is_file()}
    out = registry_place / "near.json" / "site"
    arguments = ["registry", "build", *registry_options(registry_place), "--out", out]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, NotADirectoryError)
    assert {path: path.read_bytes() for path in registry_place.rglob("*") if path.is_file()} == files


def test_another_file_under_a_cards_name_is_refused(registry_place):
    (registry_place / "near.json").write_text(chosen_json([1, 2, 3]))
    with pytest.raises(InvalidInput, match=r"near\.json: sha256 is .*, the card \(K = 3\) has"):
        called("registry", "build", *registry_options(registry_place), "--out", registry_place / "site")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"licence": None}, r"licence: "),
        ({"licence": ""}, r"licence: "),
        ({"title": "$\\nothing$"}, r"title: "),
        ({"license": "MIT"}, r"card\.yaml:\d+: license: .*did you mean 'licence'"),
        ({"selections": []}, "names neither a sampler nor a file"),
        ({"selections": [{"benchmark": "longvideobench", "k": 3, "file": "../near.json"}]}, "below the sampler's own"),
        ({"selections": [{"benchmark": "longvideobenc", "k": 3, "file": "a.json"}]}, "did you mean 'longvideobench'"),
        ({"selections": [{"benchmark": "longvideobench", "k": 0, "file": "a.json"}]}, "greater than or equal to 1"),
        ({"selections": [{"benchmark": "longvideobench", "k": 3, "file": "a.json"}] * 2}, "one name, benchmark and K"),
        ({"answers": [{"benchmark": "longvideobench", "k": 3, "file": "a.json"}]}, "answers need `model`"),
    ],
)
def test_a_card_that_is_wrong_is_one_line(tmp_path, change, message):
    item = {"benchmark": "longvideobench", "k": 3, "file": "a.json"}
    whole = {"title": "Mine", "authors": "We", "licence": "MIT", "selections": [item], **change}
    document = {key: value for key, value in whole.items() if value is not None}
    file = tmp_path / "samplers" / "mine" / "card.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in document.items()))
    with pytest.raises(InvalidInput, match=message):
        read_card(file)


def test_a_name_that_is_taken_is_refused(registry_place):
    place = registry_place / "registry"
    shutil.copytree(place / "samplers" / "near", place / "samplers" / "nearer")
    with pytest.raises(InvalidInput, match="the title 'Near' is taken by near"):
        read_registry(place)
    write_card(place, "nearer", sampler="uniform")
    write_card(place, "far", sampler="uniform")
    with pytest.raises(InvalidInput, match="the sampler 'uniform' is taken by far"):
        read_registry(place)
    with pytest.raises(InvalidInput, match="lower-case letters"):
        read_card(write_card(place, "Near-er", sampler="random"))


def test_a_tier_begins_where_the_paired_test_shows_a_difference_to_the_best():
    rng = np.random.default_rng(0)
    videos = [f"v{number}" for number in range(200)]
    best = rng.uniform(0.6, 1.0, 200)
    values = {"b": best, "a": best, "worse": best - 0.3, "noisy": rng.permutation(best) - 0.005}
    tiers = tiers_of(values, videos)
    assert tiers["a"] == tiers["b"] == 1
    assert tiers["noisy"] == 1  # its mean is lower, and nothing shows that it is worse
    assert tiers["worse"] == 2
    assert tiers_of({"a": best}, videos) == {"a": 1}
    assert tiers_of({}, []) == {}


def figure(**changed):
    fields = {"status": DERIVED, "sampler": "a", "name": "A", "version": "1", "benchmark": "realistic", "k": "8",
            "measure": "within 2 s", "value": "0.5", "tier": "1", "seed": "5", "month": "2026-10"}  # fmt: skip
    return Figure(**{**fields, **changed})


def test_earlier_months_and_versions_are_kept_and_the_last_stand(tmp_path):
    old, newer = figure(), figure(month="2026-11", seed="6", value="0.6")
    version_2 = figure(month="2026-11", seed="6", version="2", value="0.7")
    for new in (old, newer):
        write_figures(tmp_path, [new])
    figures = write_figures(tmp_path, [version_2])
    assert read_figures(tmp_path) == figures
    assert set(figures) == {old, newer, version_2}
    assert latest(figures) == [version_2]
    assert write_figures(tmp_path, [figure(value="0.4")])[0].value == "0.4"


def test_simulated_videos_are_those_recorded_last_or_of_a_new_seed():
    figures = [figure(), figure(month="2026-11", seed="6")]
    assert videos_of(figures) == videos_of(figures, 6) == ("2026-11", 6)
    month, seed = videos_of(figures, 9)
    assert (seed, month > "2026-10") == (9, True)
    assert videos_of([], 9)[1] == 9
    with pytest.raises(InvalidInput, match="give their --seed"):
        videos_of([])


def test_simulated_figures_are_the_same_for_the_same_seed_and_of_the_cards_versions(tmp_path):
    place = tmp_path / "registry"
    for name in ("uniform", "even_topk", "oracle"):
        write_card(place, name, sampler=name)
    cards = ranked(read_registry(place))
    assert [card.name for card in cards] == ["even_topk", "uniform"]
    first, second = (
        simulated_figures(cards, tmp_path / folder, seed=3, month="2026-11", videos=6) for folder in ("a", "b")
    )
    assert first == second
    assert {(item.sampler, item.k, item.measure) for item in first} == {
        (name, k, measure)
        for name in ("even_topk", "uniform")
        for k in ("8", "32")
        for measure in ("within 2 s", "cost")
    }
    cost = {item.sampler: float(item.value) for item in first if (item.k, item.measure) == ("8", "cost")}
    assert cost["uniform"] == 0 < cost["even_topk"] < 0.1
    assert {item.status for item in first} == {DERIVED}


def test_no_table_has_a_figure_without_its_status():
    cards, figures = read_registry(ROOT / "registry"), read_figures(ROOT / "registry")
    assert {item.status for item in figures} == {DERIVED, REPLAYED, COMPUTED}
    for table in leaderboards(figures, cards):
        at = table.columns.index("Status")
        assert {row.figures[at] for row in table.rows} <= {DERIVED, REPLAYED}
    table = accuracy_table(figures)
    assert {row.figures[table.columns.index("Status")] for row in table.rows} == {COMPUTED}


def test_the_files_of_the_registry_are_written_as_they_are_read(tmp_path):
    for file in (FIGURES, RECALLS, DIFFERENCES):
        records = file.read(ROOT / "registry")
        file.update(tmp_path, records)
        assert (tmp_path / file.name).read_bytes() == (ROOT / "registry" / file.name).read_bytes()
        assert file.update(tmp_path, records[3:5]) == records


def test_a_published_file_gives_its_recorded_figures_and_the_logs_own_accuracy(shared):
    arguments = ["--registry", ROOT / "registry", "--files", shared("data"), "--no-simulate", "--rates",
                 shared("data/lvb_val_fps.csv"), "--annotations", shared("data/lvb_val.json")]  # fmt: skip
    result = called("registry", "verify", "uniform", *arguments)
    assert "1 figures derived again as recorded, 0 differ" in result.output
    (recorded,) = [
        item for item in read_figures(ROOT / "registry") if (item.sampler, item.status) == ("uniform", COMPUTED)
    ]
    log = next(shared("data/field/lmms_logs/lvb_uniform").glob("*_results.json"))
    log_accuracy = json.loads(log.read_text())["results"]["longvideobench_val_v"]["lvb_acc,none"]
    assert round(float(recorded.value), 4) == pytest.approx(log_accuracy, abs=6e-5)
