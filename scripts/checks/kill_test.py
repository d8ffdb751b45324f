"""Kill runs at random moments, by signals and by writes that end at some byte, and check the rows that are left.

Twelve roads: selecting with recorded relevance, turning finished lines into Parquet, selecting with an encoder and its
store, answering through a service on this machine, the same through lmms-eval, and selecting on a Ray cluster; then
selecting in each engine and answering, in processes that SIGSEGV ends as a crashing decoder does; and selecting from
videos that other processes decode, here, on Ray and in lmms-eval, one of which is killed, or whoever started them.
Run: python -m scripts.checks.kill_test [--kills 10] [--roads select store] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.bench.kills import Survived, kill_again_and_again, started
from tests.support.keyframes.chat_server import ChatServer

ROADS = ("select", "compact", "store", "answer", "lmms-eval", "ray", "crash-local", "crash-ray",
         "crash-answer", "feed-local", "feed-ray", "feed-lmms-eval")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each road")
    parser.add_argument("--roads", nargs="+", choices=ROADS, default=ROADS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", type=int, default=400, help="per road; a tenth of them with an encoder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Before anything reads it: what lmms-eval and the hub's clients keep then goes here.
        os.environ["HF_HOME"] = str(folder / "lmms-eval" / "home")
        with _service(folder) as url:
            for number, name in enumerate(ROADS):
                if name in arguments.roads:
                    _kill(name, folder, arguments.questions, url, n_kills=arguments.kills, seed=arguments.seed + number)


def _kill(name: str, folder: Path, n_questions: int, url: str, *, n_kills: int, seed: int) -> None:
    """Kill runs of one kind, by name, and print what was left."""
    from tests.support.bench import kill_roads

    if name == "crash-local":
        road = kill_roads.crashing(folder / name, n_questions // 10, "local")
        _print(road, folder, n_kills, seed)
    elif name == "crash-ray":
        with _cluster() as address:
            road = kill_roads.crashing(folder / name, n_questions // 10, "ray", address=address)
            _print(road, folder, n_kills, seed)
    elif name == "feed-local":
        _print(kill_roads.feeding(folder / name, n_questions // 10, "local"), folder, n_kills, seed)
    elif name == "feed-ray":
        with _cluster() as address:
            _print(kill_roads.feeding(folder / name, n_questions // 10, "ray", address=address), folder, n_kills, seed)
    elif name == "ray":
        with _cluster() as address:
            _print(kill_roads.on_ray(folder / name, n_questions, address), folder, n_kills, seed)
    elif name in ("answer", "crash-answer", "lmms-eval", "feed-lmms-eval"):
        import lmms_eval.evaluator  # noqa: F401 (once, before the forks)

        import focus_eval.bench.lmms.models.openai  # noqa: F401

        if name.endswith("lmms-eval"):
            road = kill_roads.lmms_eval(folder / name, n_questions, url, feeds=name.startswith("feed"))
        else:
            road = kill_roads.answering(folder / name, n_questions, url, crashes=name == "crash-answer")
        _print(road, folder, n_kills, seed)
    else:
        make = {"select": kill_roads.selecting, "compact": kill_roads.compacting, "store": kill_roads.storing}[name]
        _print(make(folder / name, n_questions // 10 if name == "store" else n_questions), folder, n_kills, seed)


@contextmanager
def _service(folder: Path) -> Iterator[str]:
    """Start the answering service in a fork, because this process must have no thread when it forks runs."""
    url = folder / "url.txt"
    server = started(lambda: _serve(url), log=folder / "server.txt")
    try:
        while not url.exists():
            time.sleep(0.05)
        yield url.read_text()
    finally:
        os.kill(server, 9)
        os.waitpid(server, 0)


def _serve(url: Path) -> None:
    """Start a chat service and write its URL to a file once it answers."""
    with ChatServer(delay_seconds=0.05) as chat:
        part = url.with_suffix(".part")
        part.write_text(chat.url)
        part.rename(url)
        time.sleep(36000)


@contextmanager
def _cluster() -> Iterator[str]:
    """Start a Ray cluster of two workers on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    ray = str(Path(sys.executable).with_name("ray"))
    options = ["--num-cpus=2", "--num-gpus=0", "--block", "--disable-usage-stats", "--include-dashboard=false"]
    command = [ray, "start", "--head", f"--port={port}", *options]
    head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(timeout=60)


def _wait_for(port: int) -> None:
    """Wait until a service listens at the port, and a little longer, because nodes register after that."""
    for _ in range(240):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(10)
                return
        time.sleep(0.5)
    raise RuntimeError("the Ray cluster did not start within two minutes")


def _print(road, folder: Path, n_kills: int, seed: int) -> None:
    """Kill runs on one road and print a line on what was left."""
    start = time.perf_counter()
    survived = kill_again_and_again(
        road.command,
        folder / f"{road.name}-runs",
        n_kills=n_kills,
        seed=seed,
        kinds=road.kinds,
        prepare=road.prepare,
        digests=road.digests,
        victims=road.victims,
    )
    print(f"{road.name}: {_line(survived)}, {time.perf_counter() - start:.0f} s", flush=True)
    for line in survived.wrong:
        print(f"  {line}", flush=True)


def _line(survived: Survived) -> str:
    """Return a line on what was left: kills by kind, rows lost and doubled, and runs that ended wrongly."""
    kinds = ", ".join(f"{n} {kind}" for kind, n in survived.kills.items() if n)
    ends = f"{survived.rounds} runs brought to their end, {len(survived.wrong)} not as they must be"
    rows = f"{survived.lost} rows lost, {survived.repeated} twice, {survived.n_outliving} processes left"
    return f"{sum(survived.kills.values())} kills ({kinds}); {rows}; {ends}"


if __name__ == "__main__":
    main()
