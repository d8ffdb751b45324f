"""Run every measurement that needs a node with a GPU, in under ten minutes, the most valuable first.

  selection   the real worker by resolution: GPU busy share, seconds by stage, hours (bench_feed)
  encoders    frames a second, relevance and keyframes changed in each precision (bench_encoders)
  decoding    frames a second of each reader by resolution, and frames that differ (bench_readers)
  parity      BLIP at full size against transformers' own, and all ways to feed it (parity_blip)
  answers     a Qwen2-VL of the 7B's shape through the plugin: GPU busy share, seconds by stage (bench_answers)
  vllm        the same in vLLM, where it is installed
  public      selection against the public scripts' way (bench_selection)
  llava       LLaVA-Video before its first word, against transformers' classes (bench_llava_video)

Each part may take its share of the time that is left, and is stopped there. For a part that fails or is stopped, the
page says so below what the part had printed, and the others go on. Without a GPU, or with --tiny, networks and clips
are tiny, and all parts run in this process, so that libraries load once.
The section between the two marks of `--page` is replaced, or added where there are none; `--machine` gets the rates
in the form of `focus-eval plan --machine`. Name a page of your own: tests derive the figures of docs/performance.md.

Run: python -m scripts.node.measure [--page node.md] [--machine node.yaml] [--annotations F --rates F]
"""

from __future__ import annotations

import argparse
import io
import os
import runpy
import subprocess
import sys
import time
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from focus_eval.bench.matrix.machine import best_device, gpu_gigabytes
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.pipeline.timing import device_name

BEGIN, END = "<!-- measured by scripts/node/measure.py: begin -->", "<!-- measured by scripts/node/measure.py: end -->"
_FOLDER = Path(__file__).resolve().parents[1]
_SHIPPED = _FOLDER.parent / "docs" / "performance.md"  # its pulls serve a page that has no table yet
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
_SECONDS = 570.0


@dataclass(frozen=True)
class Part:
    """One script with its options, and the share of the time left for it and later scripts that it may take."""

    name: str
    command: tuple[str, ...]
    share: float


def parts_of(args: argparse.Namespace) -> list[Part]:
    """Return the scripts to run, the most valuable first."""
    data = ("--annotations", str(args.annotations), "--rates", str(args.rates)) if args.annotations else ()
    answers = ("--questions", "1", "--frames", "2", "--size", "360p", "--seconds", "2")
    small: dict[str, tuple[str, ...]] = {
        "selection": ("--tiny",),
        "encoders": ("--tiny", "--frames", "16"),
        "decoding": ("--seconds", "10", "--sizes", "360p"),
        "parity": ("--tiny", "--frames", "2"),
        "answers": ("--tiny", *answers),
        "vllm": ("--tiny", *answers),
        "public": ("--smoke", "--videos", "1", "--plain-questions", "1", "--most-seconds", "2", "--precisions", "fp32"),
        "llava": ("--tiny", "--frames", "2", "--repeats", "1", "--new-tokens", "16"),
    }
    usual: dict[str, tuple[str, ...]] = {
        "decoding": ("--seconds", "120"),
        "public": ("--precisions", "tf32", "--videos", "6", "--plain-questions", "2"),
        "llava": ("--repeats", "3"),
    }
    parts = (
        ("selection", "speed/feed.py", (), 0.3),
        ("encoders", "speed/encoders.py", (), 0.3),
        ("decoding", "speed/readers.py", (), 0.25),
        ("parity", "checks/parity_blip.py", (), 0.35),
        ("answers", "speed/answers.py", (), 0.5),
        ("vllm", "speed/answers.py", ("--engine", "vllm"), 0.5),
        ("public", "speed/selection.py", data, 0.6),
        ("llava", "speed/llava_video.py", (), 1.0),
    )
    options = small if args.tiny else usual
    return [Part(name, (script, *words, *options.get(name, ())), share) for name, script, words, share in parts]


def run_part(part: Part, *, seconds: float) -> str:
    """Run a script and return what it printed, with a note if it failed or was stopped after `seconds`."""
    command = [sys.executable, "-u", str(_FOLDER / part.command[0]), *part.command[1:]]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
        text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        return whole_lines(text) + f"\n\n**Not finished**: stopped after {seconds:.0f} s."
    if process.returncode:
        print(process.stderr, file=sys.stderr, flush=True)
        message = (process.stderr.strip().splitlines() or ["no message"])[-1]
        return whole_lines(process.stdout) + f"\n\n**Not measured**: {message}"
    return whole_lines(process.stdout)


def run_here(part: Part) -> str:
    """Run a script in this process and return what it printed, with a note if it failed."""
    printed, saved_argv = io.StringIO(), sys.argv
    message = ""
    sys.argv = [str(_FOLDER / part.command[0]), *part.command[1:]]
    try:
        with redirect_stdout(printed):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except (Exception, SystemExit) as error:  # noqa: BLE001 (said in the page; the other parts go on)
        traceback.print_exc()
        message = f"\n\n**Not measured**: {type(error).__name__}: {error}"
    finally:
        sys.argv = saved_argv
    return whole_lines(printed.getvalue()) + message


def whole_lines(printed: str) -> str:
    """Make printed text fit for a page: drop a half line and heading marks, put empty lines around tables."""
    lines: list[str] = []
    for line in printed[: printed.rfind("\n") + 1].splitlines():
        text = line.lstrip("# ") if line.startswith("#") else line.rstrip()
        is_row = text.startswith("|")
        if lines and is_row != lines[-1].startswith("|") and text and lines[-1]:
            lines.append("")
        lines.append(text)
    return "\n".join(lines).strip()


def cells_of(line: str) -> list[str]:
    """Return the cells of a table row; [] for a line outside tables."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.strip().startswith("|") else []


def rates_in(text: str) -> dict[str, float]:
    """Return frames a second by precision from the first table that bench_encoders.py prints."""
    rates: dict[str, float] = {}
    for cells in map(cells_of, text.splitlines()):
        name = cells[0].split(",")[0] if len(cells) > 2 else ""
        if name in _PRECISIONS and name not in rates and _is_number(cells[1]):
            rates[name] = float(cells[1])
    return rates


def decode_seconds_in(text: str) -> float | None:
    """Return the core seconds of a 360p frame from the table that bench_readers.py prints; None if it is missing."""
    for cells in map(cells_of, text.splitlines()):
        if cells[:2] == ["360p", "pyav"] and len(cells) > 3 and _is_number(cells[3]):
            return float(cells[3]) / 1000
    return None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def write_machine(file: Path, rates: dict[str, float], decode_seconds: float, *, tiny: bool) -> None:
    """Write the machine file that `focus-eval plan --machine` reads."""
    source = f"measured {date.today()} by scripts/node/measure.py, {device_name(best_device())}"
    document: dict[str, Any] = {
        "cores": n_cores(),
        "gpus": len(gpu_gigabytes()),
        "gpu": device_name(best_device()).partition(": ")[2] if gpu_gigabytes() else "",
        "decode_seconds": round(decode_seconds, 5),
        "frames_per_second": {"blip": rates},
        "is_measured": not tiny,
        "source": source + (", with tiny networks: no figures of an encoder" if tiny else ""),
    }
    file.write_text(yaml.safe_dump(document, sort_keys=False))


def hours_table(inside: str, rates: dict[str, float]) -> str:
    """Rebuild a page section's table of GPU hours with these rates; "" if there is no such table or no rate."""
    rows = [cells[:3] for cells in map(cells_of, inside.splitlines()) if len(cells) > 3 and "," in cells[1]]
    pull_rows = [(cells, int(cells[1].replace(",", ""))) for cells in rows if cells[1].replace(",", "").isdigit()]
    if not pull_rows or not rates:
        return ""
    lines = [["selection", "pulls", "published", *(f"{precision}, measured" for precision in rates)]]
    lines += [["---", *["---:"] * (2 + len(rates))]]
    lines += [[*cells, *(f"{pulls / rate / 3600:.3g}" for rate in rates.values())] for cells, pulls in pull_rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"GPU hours to choose the frames of a table, by the rates of `encoders`:\n\n{table}"


def section_of(page: Path | None) -> str:
    """Return the text between the marks of `page`; "" if there is none."""
    text = page.read_text(encoding="utf-8") if page is not None and page.exists() else ""
    return text.partition(BEGIN)[2].partition(END)[0]


def put_into_page(page: Path, section: str) -> None:
    """Replace the text between the marks of `page`; without marks, append the section with them."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    block = f"{BEGIN}\n{section.rstrip()}\n{END}"
    if BEGIN in text and END in text:
        head, _, tail = text.partition(BEGIN)
        text = head + block + tail.partition(END)[2]
    else:
        text = f"{text.rstrip()}\n\n{block}\n".lstrip()
    page.write_text(text, encoding="utf-8")


def main() -> None:
    """Run all parts within the time, and write the page and the machine file."""
    args = arguments()
    began, old_section = time.monotonic(), section_of(args.page)
    machine_text = f"{device_name(best_device())}, {os.cpu_count()} cores"
    meaning = "Tiny networks: these figures say that the script runs, and nothing of an encoder." if args.tiny else ""
    section = [
        f"## Measured on a node\n\n{date.today()}, {machine_text}: `python -m scripts.node.measure`. {meaning}".rstrip()
    ]
    printed: dict[str, str] = {}
    for part in parts_of(args):
        started = time.monotonic()
        remaining_seconds = args.seconds - (started - began)
        printed[part.name] = run_here(part) if args.tiny else run_part(part, seconds=part.share * remaining_seconds)
        section.append(f"### {part.name}: {time.monotonic() - started:.0f} s\n\n{printed[part.name]}")
        print(section[-1] + "\n", flush=True)
        if args.page is not None:
            # After each part: what was measured stays where the run is cut off.
            put_into_page(args.page, "\n\n".join(section))
    rates = rates_in(printed["encoders"])
    if hours := hours_table(old_section, rates) or hours_table(section_of(_SHIPPED), rates):
        section.insert(1, hours)
    if args.page is not None:
        put_into_page(args.page, "\n\n".join(section))
    decode_seconds = decode_seconds_in(printed["decoding"])
    if args.machine is not None and decode_seconds is not None:
        write_machine(args.machine, rates, decode_seconds, tiny=args.tiny)
    elif args.machine is not None:
        print(f"{args.machine} is not written: decoding was not measured")
    print(f"{time.monotonic() - began:.0f} s in all")


def arguments() -> argparse.Namespace:
    """Return the options, with the defaults of this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="Markdown file whose marked section is replaced (default: print)")
    parser.add_argument("--machine", type=Path, help="YAML file for focus-eval plan --machine")
    parser.add_argument("--annotations", type=Path, help="LongVideoBench val, JSON")
    parser.add_argument("--rates", type=Path, help="CSV with id, duration_s, fps of its questions")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="most time in all, with a GPU (default: 570)")
    parser.add_argument("--tiny", action="store_true", help="tiny networks; always on a machine without a GPU")
    args = parser.parse_args()
    if (args.annotations is None) != (args.rates is None):
        parser.error("--annotations and --rates go together")
    args.tiny = args.tiny or best_device() == "cpu"
    return args


if __name__ == "__main__":
    main()
