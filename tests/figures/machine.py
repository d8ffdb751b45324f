"""Figures of machines and files, and of the shipped matrices.

Simulations and checks record their rows with `--csv`: scripts/checks/clips.py, devices.py and faults.py.
`results/measured` holds what depends on a machine: each row names it, the date and the command.
"""

from __future__ import annotations

import json
from collections import Counter

from focus_eval.bench.matrix.config import load_matrix, load_yaml
from focus_eval.bench.matrix.hours import answer_lines, load_machine, selection_costs, time_text, total_cost
from focus_eval.bench.matrix.plan import make_plan
from focus_eval.bench.matrix.questions import stated_sets

from ..pages import ROOT
from .background import PULLS
from .rows import PAPER, PUBLISHED, rows_of, table

MEASURED = ROOT / "results/measured"
FEED_ROADS = ("threads of the worker", "processes of their own")


def measured(name):
    """Return the values of results/measured/NAME.csv as text, by (what was measured, unit)."""
    return {(row["what"], row["unit"]): row["value"] for row in rows_of(MEASURED / f"{name}.csv")}


def offline_queries():
    """Return how often `offline` flags unknown queries and known queries."""
    rows = rows_of(PUBLISHED / "offline_queries.csv")
    flagged = {
        place: [float(row["familiarity"]) < float(row["limit"]) for row in rows if row["is_inside"] == place]
        for place in "01"
    }
    outside, inside = ((len(flags), 100 * sum(flags) / len(flags)) for flags in (flagged["0"], flagged["1"]))
    of_outside = f"of {outside[0]} outside its vocabulary {outside[1]:.1f} % are flagged"
    return [f"{of_outside}, of {inside[0]} inside {inside[1]:.1f} %."]


def offline_words():
    """Return how often `offline` finds the picture of an everyday query."""
    verdicts = Counter(row["verdict"] for row in rows_of(PUBLISHED / "offline_words.csv"))
    right, flagged, wrong = (verdicts[name] for name in ("right", "flagged", "wrong"))
    found = f"of {verdicts.total()} queries {right} find their picture"
    return [f"{found}, {flagged} are flagged, {wrong} are wrong without a flag."]


def machine():
    """Return docs/performance.md's sentences on the time and memory of commands that a person waits for."""
    of = measured("machine")
    ten, hour = "select, 10 seconds of 360p, 300 frames scored", "select, one hour of 720p, 1587 frames scored"
    second_run, peak = "select, the same again", "GB at the peak"
    at_360p, at_720p = (of[f"decode a frame that focus asks for, {size}", "core ms"] for size in ("360p", "720p"))
    return [
        f"{at_360p} processor ms at 360p, {at_720p} at 720p",
        f"10 seconds of 360p, 300 frames scored: {of[ten, 'processor s']} processor seconds, {of[ten, peak]} GB; again "
        f"with `--store`: {of[second_run, 'processor s']} processor seconds",
        f"-k 64`, one hour of 720p, 1587 frames scored: {of[hour, 's']} s, {of[hour, peak]} GB",
    ]


def reading():
    """Return docs/performance.md's sentences on the seconds of reading the frames of FOCUS.

    Each with our reader, and with decord reading one index after the other.
    """
    of = measured("machine")
    shorter, longer = (
        [of[f"read for focus, {clip}, {method}", "s"] for method in ("ours", "one at a time")]
        for clip in ("20 min 360p", "60 min 720p")
    )
    return [
        f"20 minutes of 360p in {shorter[0]} s, decord one index at a time in {shorter[1]} s",
        f"60 minutes of 720p in {longer[0]} and {longer[1]} s",
    ]


def verification():
    """Return docs/benchmarks.md's sentences on the processor seconds of `videos verify` for an hour of video."""
    of = measured("machine")
    costs = {
        size: of[f"videos verify, an hour of {size}, H.264, 30 frames a second", "processor s"]
        for size in ("360p", "720p", "1080p")
    }
    return [
        f"takes {costs['360p']} processor seconds at 360p, {costs['720p']} at 720p and {costs['1080p']} at 1080p",
        "H.264 at 30 frames a second",
    ]


def node():
    """Return docs/performance.md's sentence on how much of the time simulated GPUs are busy.

    Of eight GPUs with a worker each, by size of the video, and of one with one worker or two.
    """
    of = measured("node")

    def busy(node_text):
        return of[node_text, "% busy"]

    eight_shares = [busy(f"{size}, 8 GPUs, one worker per GPU") for size in ("360p", "720p", "1080p")]
    methods = ("one worker per GPU", "a worker for every 8 cores")
    single_shares = [busy(f"720p, 1 GPUs, {method}") for method in methods]
    return [
        "eight GPUs with a worker each are busy {} % of the time at 360p, {} % at 720p and {} % at 1080p".format(
            *eight_shares
        ),
        "; one GPU at 720p {} % with one worker and {} % with one for every eight cores".format(*single_shares),
    ]


def gpu():
    """Return docs/performance.md's sentences and table of what was measured on a GPU."""
    values, precisions = measured("h200"), []

    def get(what, unit):
        return values[what, unit]

    for precision in ("fp32", "tf32", "bf16", "fp16"):
        encoder, cells = f"BLIP-large, {precision}", ["-"] * 4
        if precision != "fp32":
            cells = [f"{float(get(encoder, 'largest move of relevance')):.3f}"]
            cells += [f"{get(encoder, f'% of {sampler} keyframes changed')} %" for sampler in ("topk", "aks", "focus")]
        rate, share = get(encoder, "frames a second"), get(encoder, "% of the matrix rate")
        precisions.append((precision.replace("tf", "TF"), rate, f"{share} %", *cells))
    clips = "focus, 16 clips of 5 minutes, {}, TF32"
    rates = [
        float(get(clips.format(size), "frames")) / float(get(clips.format(size), "s")) for size in ("360p", "720p")
    ]
    busy = [get(clips.format(size), "% busy") for size in ("360p", "720p")]
    hours = [get(clips.format(size), "GPU hours for 446610 frames") for size in ("360p", "720p")]
    n_frames = int(get(clips.format("360p"), "frames"))
    needed = n_frames / float(get("BLIP-large, tf32", "frames a second"))
    clock = get(clips.format("360p"), "s by the device's clock")
    video, stock = "LLaVA-Video 7B, 64 frames", "transformers' LLaVA-OneVision with as many tokens"
    first = [float(get(f"{who}, first token", "s")) for who in (video, stock)]
    peaks = [get(who, "GiB at the peak") for who in (video, stock)]
    qwen = "Qwen2-VL 7B, 32 frames of 720p"
    resize = [
        int(get(f"resize 640x360 to 384, {how}", "frames a second")) for how in ("on the device", "Pillow on one core")
    ]
    return [
        *table(*precisions),
        "(16 clips of 5 minutes, `focus`, TF32)",
        f"encodes {rates[0]:.0f} frames a second at 360p and {rates[1]:.0f} at 720p",
        f"{hours[0]} and {hours[1]} GPU hours for `focus` on LongVideoBench",
        f"{busy[0]} and {busy[1]} % of the time",
        f"at 360p {n_frames:,} frames took {clock} s of its clock, where the encoder alone needs {needed:.1f}",
        f"LLaVA-Video 7B with 64 frames takes {first[0]:.2f} s to the first token and {peaks[0]} GiB",
        f"transformers' own class with as many tokens {first[1]:.2f} s and {peaks[1]} GiB",
        "A Qwen2-VL of the 7B's shape (32 frames of 720p, one new token, questions prepared ahead) takes "
        f"{get(qwen, 's a question')} s a question",
        f"generating {get(qwen, '% generating')} % of it",
        f"The GPU resizes {resize[0]:,} frames a second, Pillow {resize[1]} on one core.",
    ]


def feed():
    """Return docs/performance.md's table of a worker on an imitated device, by what decodes its videos."""
    of = measured("feed")
    rows = [
        ("the device's clock over that of the encoder alone", "device's clock over the encoder's alone", 2, "1.05"),
        ("us that a launch waits for Python's lock", "us of waiting for the lock, an acquisition", 1, "5"),
        ("acquisitions of the lock a frame", "acquisitions of the lock a frame", 0, "100"),
        ("ms of the main process a frame", "main process ms a frame", 2, "1"),
        ("frames a second", "frames a second", 0, "-"),
    ]
    return table(
        *(
            (title, *(f"{float(of[road, unit]):.{digits}f}" for road in FEED_ROADS), aim)
            for title, unit, digits, aim in rows
        )
    )


def feed_decoder():
    """Return docs/performance.md's table of processor seconds of selecting with the real decoder, by who decodes."""
    of = measured("feed")
    decoders = ("threads", "feed")
    return table(
        *(
            (size, *(of[f"{decoder}, focus, {size}", "processor s"] for decoder in decoders))
            for size in ("360p", "720p")
        )
    )


def feed_expected():
    """Return docs/performance.md's sentence on what is expected of a GPU, and was not measured."""
    of = measured("feed")
    rates = {
        size: [int(of[f"expected, focus, {size}, TF32, {end}", "frames a second"]) for end in ("least", "most")]
        for size in ("360p", "720p")
    }
    hours = [PULLS["focus, alpha .25"] / rate / 3600 for rate in reversed(rates["360p"])]
    bound = of["expected, focus, 1080p, TF32, most", "frames a second"]
    return [
        "{} to {} frames a second at 360p and {} to {} at 720p".format(*rates["360p"], *rates["720p"]),
        f"at most {bound} at 1080p",
        "{:.2f} to {:.2f} GPU hours for `focus` on LongVideoBench at 360p".format(*hours),
    ]


def span(values):
    """Return the range of shares as percentages, e.g. "98 to 99 %"; one percentage if both ends are rounded to it."""
    lowest, highest = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{lowest} %" if lowest == highest else f"{lowest} to {highest} %"


MOMENTS = ("ahead", "when it is free")


def answers():
    """Return docs/performance.md's sentences on what an answer takes in the plugin, and how long a model waits."""
    rows = {row["what"]: row for row in rows_of(MEASURED / "answers.csv")}
    values = {name: f"{float(row['value']):.0f}" for name, row in rows.items()}
    low, high = (f"{float(rows['plugin, its own'][end]):.0f}" for end in ("lowest", "highest"))
    idle, busy = (
        [rows[f"a model that sleeps 2.5 s, inputs prepared {moment}, {cores} cores"]["value"] for moment in MOMENTS]
        for cores in ("idle", "busy")
    )
    surplus, stock, plugin = (values[name] for name in ("plugin, its own", "stock", "plugin"))
    return [
        f"adds {surplus} processor ms of its own to an answer (median; {low} to {high} in twenties of 200 questions",
        f"the stock wrapper takes {stock}, {values['stock, reading']} of them for reading, "
        f"the plugin {plugin}, of them {values['plugin, reading']}",
        f"that sleeps 2.5 s waits {idle[0]} % of the time on two idle cores with inputs prepared ahead, {idle[1]} % "
        f"with inputs prepared when it is free; on busy cores {busy[0]} and {busy[1]} %",
    ]


def answering():
    """Return docs/performance.md's sentences on how busy a simulated GPU is while a model answers.

    As simulated once, on 2026-11-23.
    """
    rows = rows_of(PUBLISHED / "answer_simulation.csv")

    def busy(video, *columns, is_few):
        """Return the range of these columns' shares of busy time; `is_few` chooses nodes with 8 cores per GPU."""
        of = [row for row in rows if row["video"] == video and (row["cores each"] == "8") == is_few]
        return span([float(row[column]) for row in of for column in columns])

    return [
        f"at 720p {busy('720p', 'ahead', 'together', is_few=False)} of the time with 16 or more cores per GPU and "
        f"{busy('720p', 'ahead', 'together', is_few=True)} with 8; at 1080p "
        f"{busy('1080p', 'ahead', 'together', is_few=False)} and {busy('1080p', 'ahead', 'together', is_few=True)}",
        "Qwen2-VL (32 or 64 frames, 0.6 s a forward with 32)",
    ]


def stores():
    """Return docs/performance.md's sentences on how workers use their nodes' stores of scores.

    As simulated once, on 2026-11-23.
    """
    rows = {row["workers"]: row for row in rows_of(PUBLISHED / "pool_simulation.csv")}

    def share_found(workers):
        return f"{100 * float(rows[workers]['found again']):.0f} %"

    return [f"{share_found('32')} of it on {rows['32']['nodes']} nodes, {share_found('100')} on {rows['100']['nodes']}"]


def total(rows, column):
    return sum(int(row[column]) for row in rows)


def clips():
    """Return docs/reliability.md's sentences on clips, and on other projects' files, that are read exactly.

    Fails if any clip was refused, read wrongly or not made.
    """
    (device_line,) = rows_of(PUBLISHED / "devices.csv")
    clips_made = rows_of(PUBLISHED / "clips.csv")
    assert [total(clips_made, column) for column in ("refused", "wrong", "not made")] == [0, 0, 0]
    assert int(device_line["files"]) == int(device_line["right"]) + int(device_line["refused rightly"])
    return [
        f"makes {total(clips_made, 'exact')} clips",
        f"Of {device_line['files']} files of other projects' tests, {device_line['right']} are right and "
        f"{device_line['refused rightly']} refused with cause",
    ]


CODECS = {"H.264": "h264", "HEVC": "hevc", "VP8": "vp8", "VP9": "vp9", "AV1": "av1", "MPEG-4": "mpeg4",
          "MPEG-2": "mpeg2", "MJPEG": "mjpeg", "ProRes": "prores", "FFV1": "ffv1", "WMV 2": "wmv2",
          "GIF": "gif"}  # fmt: skip


def faults():
    """Return docs/reliability.md's table and sentences on how the reader fares with damaged files.

    Fails if it crashed, hung, read a file as shorter than it is, or gave a wrong frame that a plain decode shows.
    """
    rows = rows_of(PUBLISHED / "faults.csv")
    assert [total(rows, column) for column in ("crashed", "hung", "shorter")] == [0, 0, 0]
    assert total(rows, "wrong") == 0
    lines = []
    for damage in ("stretches of bytes", "one byte or bit"):
        group = [row for row in rows if row["damage"] == damage]
        right, refused, falsely, unseen = (
            total(group, column) for column in ("right", "refused", "refused falsely", "wrong without a sign")
        )
        counts = (right + refused + falsely + unseen, right, refused + falsely, falsely, unseen)
        lines.append((damage, *map(str, counts)))
    wrong_counts = {
        codec: total([row for row in rows if row["clip"].startswith(prefix)], "wrong without a sign")
        for codec, prefix in CODECS.items()
    }
    assert sum(wrong_counts.values()) == total(rows, "wrong without a sign")
    by_count = sorted((-count, codec) for codec, count in wrong_counts.items() if count)
    n_files, n_clips = sum(total(rows, column) for column in list(rows[0])[2:]), len({row["clip"] for row in rows})
    return [
        f"{n_files} files made from {n_clips} clips",
        *table(*lines),
        "Wrong are " + ", ".join(f"{codec} {-count}" for count, codec in by_count),
    ]


def faults_further():
    """Return docs/reliability.md's sentence on damaged files of further clips; fails where `faults` does."""
    rows = rows_of(PUBLISHED / "faults_further.csv")
    assert [total(rows, column) for column in ("crashed", "hung", "shorter", "wrong", "refused falsely")] == [0] * 5
    right, refused, unseen = (total(rows, column) for column in ("right", "refused", "wrong without a sign"))
    n_clips = len({row["clip"] for row in rows})
    return [
        f"of {right + refused + unseen} files from {n_clips} clips {right} were right, {refused} refused and {unseen} "
        "wrong without a sign."
    ]


_CHECK_GROUPS = {
    "Matroska: checksums": ("Matroska: checksums",),
    "Matroska, WMV: bytes promised": ("bytes promised",),
    "demuxer's log": ("demuxer's log",),
    "transport streams: cut, damaged, counters, times": (
        "TS: counters", "TS: cut within a packet", "TS: damaged packets", "TS: times of pictures",
    ),
    "Ogg: pages": ("Ogg: pages",),
    "VP9: decoded by libvpx, too": ("second decoder: VP9",),
    "AV1: next packet": ("AV1: next packet",),
    "Flash: tags": ("Flash: tags",),
    "first frames": ("first frames",),
    "MP4: boxes of fragments": ("MP4: boxes",),
    "AVI: frames promised": ("frames promised",),
}  # fmt: skip


def reader_checks():
    """Return docs/reliability.md's table of the reader's own checks.

    Fails if a check that stays refuses a valid file, or prevents nothing that no other check prevents.
    """
    rows = rows_of(PUBLISHED / "reader_checks.csv")
    staying = [row for row in rows if row["verdict"] == "stays"]
    assert {row["check"] for row in staying} == {name for names in _CHECK_GROUPS.values() for name in names}
    assert all(int(row["alone"]) and not int(row["refuses falsely"]) for row in staying)
    lines = []
    for title, names in _CHECK_GROUPS.items():
        group = [row for row in staying if row["check"] in names]
        lines.append((title, str(total(group, "prevents")), str(total(group, "alone"))))
    leaving = [row for row in rows if row["verdict"] == "leaves"]
    zeros = total([row for row in rows if row["check"].startswith("zeros")], "alone")
    second = total([row for row in rows if row["check"] == "second decoder: VP8"], "alone")
    n_false = sum(int(row["refuses falsely"]) > 0 for row in leaving)
    n_idle = sum(not int(row["prevents"]) and not int(row["refuses falsely"]) for row in leaving)
    names = {2: "two", 3: "three"}
    return [
        *table(*lines),
        f"Of {rows[0]['files']} damaged files. Zeros in packets ({zeros} by it alone) and a second decoder "
        f"of VP8 ({second}) cannot be sure",
        f"{len(leaving)} checks left: {names[n_false]} of them refused valid files, {n_idle} prevented nothing.",
    ]


def kills():
    """Return docs/reliability.md's sentences on runs killed at random moments.

    Fails unless every run that ended has the rows of an undisturbed one.
    """
    rows = rows_of(PUBLISHED / "kills.csv")
    assert [total(rows, column) for column in ("rows lost", "rows twice")] == [0, 0]
    ended = total(rows, "runs ended")
    assert total(rows, "as an undisturbed one") == ended
    return [f"After {total(rows, 'kills')} kills", f"the {ended} runs that ended"]


def load():
    """Return docs/reliability.md's sentences on the processor seconds and memory of commands on many questions."""
    of = measured("load")
    size = "50,000 questions"
    largest = "report, 1,000,000 rows"
    return [
        size,
        f"{of[f'run, {size}', 'processor s']} s, {of[f'run, {size}', 'MiB at the peak']} MiB",
        f"a million rows: {of[largest, 'processor s']} s, {of[largest, 'GB at the peak']} GB",
    ]


def growth():
    """Return docs/performance.md's table of what commands take by the number of questions of a run."""
    of = {(row["command"], row["questions"]): row for row in rows_of(MEASURED / "growth.csv")}
    lines = []
    for command in dict.fromkeys(command for command, _ in of):
        sizes = [of.get((command, size)) for size in ("1000", "10000", "100000")]
        seconds = [float(row["processor s"]) if row else None for row in sizes]
        peaks = [row["peak MiB"] for row in sizes if row]
        in_seconds = [f"{value:.1f} s" if value else "-" for value in seconds]
        lines.append((f"`{command}`", *in_seconds, f"{peaks[0]} to {peaks[-1]} MiB"))
    return table(*lines)


def sheets():
    """Return docs/quickstart.md's sentence on what 100 rows of a sheet take."""
    of = {row["what"]: row for row in rows_of(MEASURED / "sheets.csv")}
    one, two, loop, single = (
        of[name] for name in ("one sheet, one worker", "one sheet, two workers", "a loop in Python", "single calls")
    )
    assert {row["rows"] for row in (one, two, loop)} == {"100"}
    a_call = float(single["processor s"]) / int(single["rows"])
    return [
        f"one worker takes {float(one['s']):.0f} s, {float(one['processor s']):.0f} of the processor, and "
        f"{one['peak MiB']} MiB, two workers {float(two['s']):.0f} s, {float(two['processor s']):.0f} and "
        f"{two['peak MiB']} MiB",
        f"a loop in Python {float(loop['s']):.0f} s and {loop['peak MiB']} MiB",
        f"a call for each row {a_call:.1f} processor seconds a row",
    ]


def colours():
    """Return docs/reliability.md's sentences on the largest differences of colours.

    Fails if a format or an orientation differs from the command line's with bilinear scaling of chroma.
    """
    rows = rows_of(PUBLISHED / "colours.csv")
    turned = [row for row in rows if row["format"].startswith("display matrix")]
    assert len(turned) == 8
    assert {row["ffmpeg, bilinear"] for row in rows} == {"0"}
    gray = [row for row in rows if (row["format"], row["range"]) == ("8 bits, gray", "limited")]
    other_rows = [row for row in rows if row not in (*turned, *gray)]
    most_gray = max(float(row["formula"]) for row in gray)
    largest = {column: max(float(row[column]) for row in other_rows) for column in ("ffmpeg", "formula")}
    return [
        f"from the formula by at most {largest['formula']:g} of 255 levels, and by {most_gray} for gray of 8 bits",
        f"differs by up to {largest['ffmpeg']:g} levels",
    ]


def second_query():
    """Return docs/quickstart.md's sentence on the processor seconds of a second query of the same video."""
    of = measured("machine")
    seconds = [
        of[f"select --store, the demo's video of 15 minutes, {query} query", "processor s"]
        for query in ("first", "second")
    ]
    return [
        "On the demo's video of 15 minutes",
        f"the first takes {seconds[0]} processor seconds, the second {seconds[1]}",
    ]


def demo_seconds():
    """Return docs/performance.md's sentence on the seconds of the demo from an empty cache."""
    of = measured("machine")
    return [
        f"{of['demo, empty cache', 's']} s, {of['demo, empty cache', 'processor s']} of the processor; the first table "
        f"after {of['demo, empty cache, first table', 's']} s",
    ]


DATA = {
    "longvideobench": ("LongVideoBench", "longvideobench_val_v", "CC-BY-NC-SA 4.0, gated: accept its terms"),
    "videomme": ("Video-MME", "videomme", "academic research only"),
    "mlvu": ("MLVU dev", "mlvu_dev", "CC-BY-NC-SA 4.0; this copy states none"),
    "vsibench": ("VSI-Bench", "vsibench", "annotations Apache-2.0; scenes have their own"),
}


def shipped_models():
    """Return the shipped configs of models whose weights must be downloaded, by name."""
    files = sorted((ROOT / "configs/models").glob("*.yaml"))
    models = {file.stem: load_yaml(file) for file in files}
    return {name: model for name, model in models.items() if "disk_gigabytes" in model}


def downloads():
    """Return docs/reproduce.md's table of the sizes and folders of the benchmarks' videos, and the size of all.

    Fails if a config does not list the task that the table names.
    """
    lines, to_fetch = [], sum(model["disk_gigabytes"] for model in shipped_models().values())
    for name, (title, task, licence) in DATA.items():
        config = load_yaml(ROOT / f"configs/benchmarks/{name}.yaml")
        assert task in config["tasks"]
        folder, size = config["videos"].partition("}/")[2], config["disk_gigabytes"]
        fetched = config.get("disk_copies", 2) * size
        to_fetch += fetched
        lines.append((f"{title}, `{task}`", f"{size} GB", f"{fetched} GB", f"`{folder}`", licence))
    return [*table(*lines), f"{to_fetch / 1000:.1f} TB"]


def models():
    """Return docs/reproduce.md's commands that download the models, each with the size from its config."""
    return [
        f"hf download {model['args']['pretrained']} # {name}, {model['disk_gigabytes']} GB"
        for name, model in shipped_models().items()
    ]


def foretold():
    """Return docs/reproduce.md's sentences on what `plan` foretells for tables of the paper on eight H100."""
    machine, hours, dollars = load_machine("eight_h100"), {}, {}
    for name in ("main_results", "efficiency", "alpha", "two_stage", "bernstein", "clip_length", "encoder"):
        matrix = load_matrix(name)
        plan = make_plan(matrix, sets=stated_sets(matrix))
        answers = answer_lines(plan, machine)
        hours[name] = total_cost(selection_costs(plan, machine)).hours, sum(line.hours or 0 for line in answers)
        dollars[name] = sum(line.dollars or 0 for line in answers)
    main_texts = [*map(time_text, hours.pop("main_results")), f"{dollars['main_results']:,.0f}"]
    efficiency_text = time_text(hours.pop("efficiency")[0])
    longest = [time_text(max(part)) for part in zip(*hours.values(), strict=True)]
    return [
        "`main_results` takes at least {} to choose frames, {} to answer and {} dollars".format(*main_texts),
        f"`efficiency` {efficiency_text}; the others at most {longest[0]} and {longest[1]} each",
    ]


def pace():
    """Return docs/reproduce.md's sentence on the speed of the paper's selection."""
    published = {row["method"]: row["gpu_hours"] for row in rows_of(PAPER / "efficiency.csv")}
    hours = {f"focus, alpha {row['alpha'][1:]}": row["gpu_hours"] for row in rows_of(PAPER / "alpha.csv")}
    hours |= {"aks": published["aks"], "aks_dense": published["aks_no_prefilter"]}
    rates = [pulls / float(hours[name]) / 3600 for name, pulls in PULLS.items()]
    return [f"{min(rates):.0f} to {max(rates):.0f} frames a second"]


def tensors():
    """Return docs/fidelity.md's table of the cases recorded from the original models.

    With how near the tests require our values to be.
    """
    from tests.keyframes.encoders.test_blip_parity import TOLERANCE as BLIP_TOLERANCE
    from tests.support.bench.llava_video_parity import TOLERANCE as LLAVA_TOLERANCE

    llava = json.loads((ROOT / "tests/recorded/llava_video/cases_meta.json").read_text())["cases"]
    blip = json.loads((ROOT / "tests/recorded/blip/cases.json").read_text())
    return table(
        (
            "LLaVA-NeXT, `focus_llava_video`",
            f"{len(llava)}",
            "pixels, prompts, frame indices and times, greedy tokens",
            f"`{LLAVA_TOLERANCE:g}`: features, embeddings, logits",
        ),
        (
            "LAVIS, `blip`",
            f"{len(blip['images'])} images, {len(blip['texts'])} texts",
            "pixels, cleaned text, token ids, mask",
            f"`{BLIP_TOLERANCE:g}`: match probabilities",
        ),
    )


def video_tokens():
    """Return docs/models.md's sentences on the tokens of 64 frames and on the config's context.

    The layouts are those of a vision tower of 27 by 27 patches.
    """
    from focus_eval.bench.lmms.llava_video.checkpoint import TokenLayout

    config = json.loads((ROOT / "tests/recorded/llava_video/config.json").read_text())
    counts = [TokenLayout(side=27, pooling=pooling, newline="grid").count(64) for pooling in ("bilinear", "average")]
    return [
        f"64 frames take {counts[0]:,} tokens (bilinear, grid) or {counts[1]:,} (average, grid)",
        f"the context of {config['tokenizer_model_max_length']:,}",
    ]


FIGURES = {
    "video_tokens": video_tokens,
    "tensors": tensors,
    "downloads": downloads,
    "models": models,
    "pace": pace,
    "clips": clips,
    "faults": faults,
    "faults_further": faults_further,
    "reader_checks": reader_checks,
    "kills": kills,
    "load": load,
    "growth": growth,
    "sheets": sheets,
    "colours": colours,
    "second_query": second_query,
    "demo_seconds": demo_seconds,
    "machine": machine,
    "offline_queries": offline_queries,
    "offline_words": offline_words,
    "reading": reading,
    "verification": verification,
    "feed": feed,
    "feed_decoder": feed_decoder,
    "feed_expected": feed_expected,
    "gpu": gpu,
    "node": node,
    "answering": answering,
    "answers": answers,
    "foretold": foretold,
    "stores": stores,
}
