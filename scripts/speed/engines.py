"""How much faster does a CPU decode for samplers with a process per core than with threads? Turn about.

Four videos of the demo, its samplers at K = 8; the encoder's features are kept from a first run that is not measured.
Where frames are encoded on the same cores too, this takes most of the time with either.

Run: python -m scripts.speed.engines [--rounds 2]
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from focus_eval.bench.demo.photo_events import build_photo_events
from focus_eval.bench.matrix.config import MatrixConfig, load_matrix
from focus_eval.bench.matrix.engines import LocalEngine, ProcessEngine
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.processes import n_cores
from focus_eval.core.resources import resource_path

VIDEOS = ("medium_a", "medium_b", "medium_c", "medium_d")
ENGINES = {kind.name: kind for kind in (LocalEngine, ProcessEngine)}


def measure(matrix: MatrixConfig, engine: str, folder: Path) -> tuple[float, float]:
    """Return wall and processor seconds of one run with an empty store and the features beside `folder`."""
    processor_start, start = _processor_seconds(), time.perf_counter()
    chosen_engine = ENGINES[engine](store=folder / "store.sqlite", features=folder.parent / "features")
    complete_run(matrix, out=folder / "run", engine=chosen_engine)
    return time.perf_counter() - start, _processor_seconds() - processor_start


def _processor_seconds() -> float:
    """Return the processor seconds of this process and its ended children."""
    usages = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Print the seconds of each run, and the ratio of the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each engine")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_photo_events(folder / "data", video_ids=VIDEOS)
        os.environ["FOCUS_EVAL_DEMO"] = str(folder / "data")
        matrix = load_matrix(resource_path("configs") / "demo.yaml", overrides={"models": [], "available_only": True})
        measure(matrix, "processes", folder / "first")
        sums = {engine: [0.0, 0.0] for engine in ENGINES}
        for number in range(rounds):
            for engine in list(ENGINES)[:: 1 if number % 2 == 0 else -1]:
                seconds = measure(matrix, engine, folder / f"{engine}{number}")
                sums[engine] = [total + part for total, part in zip(sums[engine], seconds, strict=True)]
                print(f"{engine:<10} {seconds[0]:6.1f} s wall, {seconds[1]:6.1f} s of processors", flush=True)
        wall, processors = (slow / fast for slow, fast in zip(sums["local"], sums["processes"], strict=True))
        print(f"local takes, on {n_cores()} cores: wall x{wall:.2f}, processors x{processors:.2f}")


if __name__ == "__main__":
    main()
