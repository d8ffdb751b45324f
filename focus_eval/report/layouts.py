"""The layout of each of the paper's tables, and where its published figures are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from focus_eval.errors import unknown_name
from focus_eval.report.anchors import published_sampler

Values = Mapping[str, Any]
AnchorKey = Callable[[Values], dict[str, str]]


@dataclass(frozen=True)
class Column:
    """One column: a metric over the rows where all of `where` holds; `published` is its column among the anchors."""

    title: str
    metric: str = "accuracy"
    where: Mapping[str, str] = field(default_factory=dict)
    published: str = ""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One table's shape.

    Args:
        keys: columns of the answer frame that name a line.
        anchors: name of the published table; "" for none.
        anchor_key: the published line that a line of ours stands beside.
        published_keys: texts for `keys` of a published line that we have no rows for.
        benchmark: where the whole table is about one.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    anchors: str = ""
    anchor_key: AnchorKey = field(default=lambda _values: {})
    published_keys: Callable[[Mapping[str, str]], tuple[str, ...]] = field(default=lambda _line: ())
    benchmark: str = ""


KEY_TITLES = {
    "benchmark": "Benchmark",
    "model": "Model",
    "sampler": "Sampler",
    "label": "Sampler",
    "encoder": "Encoder",
    "alpha": "alpha",
    "clip_seconds": "Clip (s)",
    "k": "K",
}
BUCKETS = ("short", "medium", "long")
_LENGTHS = tuple(Column(name.capitalize(), where={"bucket": name}, published=name) for name in BUCKETS)
_OVERALL = Column("Overall", published="overall")


def _model_and_sampler(values: Values) -> dict[str, str]:
    return {"model": str(values["model"]), "sampler": published_sampler(values["sampler"])}


def _benchmark_and_sampler(values: Values) -> dict[str, str]:
    return {"benchmark": str(values["benchmark"]), "sampler": published_sampler(values["sampler"])}


def _variant(column: str, of: str) -> AnchorKey:
    """The published line goes by one option, and says "uniform" where the baseline stands."""

    def key(values: Values) -> dict[str, str]:
        if published_sampler(values["sampler"]) == "uniform":
            return {column: "uniform"}
        value = values[of]
        return {column: f"{value:g}" if isinstance(value, (int, float)) else str(value)}

    return key


def _pivot(name: str, title: str, samplers: tuple[str, ...]) -> Layout:
    return Layout(
        name=name,
        title=title,
        keys=("model",),
        columns=tuple(Column(sampler, where={"sampler": sampler}, published=sampler) for sampler in samplers),
        anchors=name,
        anchor_key=lambda values: {"model": str(values["model"])},
        published_keys=lambda line: (line["model"],),
        benchmark="longvideobench",
    )


LAYOUTS = {
    item.name: item
    for item in (
        Layout(
            name="main_results",
            title="Accuracy of models with uniform frames and with FOCUS",
            keys=("model", "sampler"),
            columns=(
                Column("LongVideoBench", where={"benchmark": "longvideobench"}, published="longvideobench"),
                Column("Video-MME", where={"benchmark": "videomme"}, published="videomme"),
            ),
            anchors="main_results",
            anchor_key=_model_and_sampler,
            published_keys=lambda line: (line["model"], line["sampler"]),
        ),
        Layout(
            name="by_length",
            title="Accuracy by length of the video",
            keys=("benchmark", "sampler"),
            columns=(*_LENGTHS, _OVERALL),
            anchors="by_length",
            anchor_key=_benchmark_and_sampler,
            published_keys=lambda line: (line["benchmark"], line["sampler"]),
        ),
        Layout(
            name="efficiency",
            title="Cost of choosing",
            keys=("sampler",),
            columns=(
                Column("Frames scored (%)", "frames_scored", published="frames_seen_percent"),
                Column("Hours", "hours", published="gpu_hours"),
            ),
            anchors="efficiency",
            anchor_key=lambda values: {"method": published_sampler(values["sampler"])},
            published_keys=lambda line: (line["method"],),
            benchmark="longvideobench",
        ),
        Layout(
            name="alpha",
            title="Share of clips looked at closely",
            keys=("sampler", "alpha"),
            columns=(
                Column("Accuracy", published="accuracy"),
                Column("Frames scored (%)", "frames_scored", published="frames_seen_percent"),
                Column("Hours", "hours", published="gpu_hours"),
            ),
            anchors="alpha",
            anchor_key=_variant("alpha", "alpha"),
            published_keys=lambda line: ("focus", line["alpha"]),
            benchmark="longvideobench",
        ),
        Layout(
            name="more_benchmarks",
            title="Accuracy on MLVU and VSI-Bench",
            keys=("model", "sampler"),
            columns=(
                Column("MLVU", "task_mean", where={"benchmark": "mlvu"}, published="mlvu"),
                Column("MLVU, over questions", where={"benchmark": "mlvu"}),
                Column("VSI-Bench", "task_mean", where={"benchmark": "vsibench"}, published="vsibench"),
                Column("VSI-Bench, over questions", where={"benchmark": "vsibench"}),
            ),
            anchors="more_benchmarks",
            anchor_key=_model_and_sampler,
            published_keys=lambda line: (line["model"], line["sampler"]),
        ),
        _pivot("two_stage", "Coarse only, fine only, both", ("uniform", "focus_c", "focus_f", "focus")),
        _pivot("bernstein", "With and without the confidence radius", ("uniform", "focus_m", "focus")),
        Layout(
            name="clip_length",
            title="Seconds per clip",
            keys=("sampler", "clip_seconds"),
            columns=(Column("Accuracy", published="accuracy"), Column("Hours", "hours", published="gpu_hours")),
            anchors="clip_length",
            anchor_key=_variant("clip_seconds", "clip_seconds"),
            published_keys=lambda line: (
                ("uniform", "") if line["clip_seconds"] == "uniform" else ("focus", line["clip_seconds"])
            ),
            benchmark="longvideobench",
        ),
        Layout(
            name="encoder",
            title="Which network gives relevance",
            keys=("sampler", "encoder"),
            columns=(Column("Accuracy", published="accuracy"),),
            anchors="encoder",
            anchor_key=_variant("encoder", "encoder"),
            published_keys=lambda line: ("uniform", "") if line["encoder"] == "uniform" else ("focus", line["encoder"]),
            benchmark="longvideobench",
        ),
        Layout(
            name="overview",
            title="Accuracy by length, evidence recall and cost",
            keys=("benchmark", "model", "label"),
            columns=(
                *(Column(item.title, where=item.where) for item in _LENGTHS),
                Column("Overall"),
                Column("Mean of task types", "task_mean"),
                Column("Recall@1 s (%)", "recall@1"),
                Column("Recall@2 s (%)", "recall@2"),
                Column("Recall@5 s (%)", "recall@5"),
                Column("Frames scored (%)", "frames_scored"),
                Column("Hours", "hours"),
            ),
        ),
    )
}


def layout_named(name: str) -> Layout:
    """Return the layout `name`.

    Raises:
        UnknownName: no such layout.
    """
    if name not in LAYOUTS:
        raise unknown_name("table", name, LAYOUTS)
    return LAYOUTS[name]
