"""A run of an own benchmark with made rows: four samplers with recorded relevance, and the answers of one model.

python -m tests.support.bench.made_runs FOLDER N_QUESTIONS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from focus_eval.bench.matrix.cells import AnswerSpec, cells, selection_specs
from focus_eval.bench.matrix.config import MatrixConfig, load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.rows.store import part_writer
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.support.bench.load import QUESTIONS_PER_VIDEO, write_load_matrix

SAMPLERS = ("uniform", "topk", "aks", "focus")
# Questions whose frames are really chosen; later rows repeat these.
CHOSEN = 200
LETTERS = "ABCD"


def write_matrix(folder: Path, n_questions: int) -> Path:
    """Write an own benchmark of `n_questions` and a matrix of `SAMPLERS` and one model; return the matrix file."""
    path = write_load_matrix(
        folder / "datasets" / "longvideobench", n_questions, samplers=SAMPLERS, n_lengths=CHOSEN // QUESTIONS_PER_VIDEO
    )
    data = path.parent
    (data / "validation.json").write_bytes((data / "questions.json").read_bytes())
    (data / "videos").mkdir()
    for number in range(-(-n_questions // QUESTIONS_PER_VIDEO)):
        (data / "videos" / f"v{number}.mp4").write_bytes(b"never opened")
    benchmark = {
        "name": "mine",
        "benchmark": "mine",
        "task": "focus_photo_events",
        "annotations": str(data / "validation.json"),
        "videos": str(data / "videos"),
        "rates": str(data / "rates.csv"),
        "data_home": str(folder),
        "dataset": str(data),
        "fields": "longvideobench",
    }
    matrix = yaml.safe_load(path.read_text())
    matrix |= {"benchmarks": [benchmark], "models": ["zero_shot"]}
    path.write_text(yaml.safe_dump(matrix))
    return path


def write_run(matrix: MatrixConfig, out: Path, n_questions: int) -> None:
    """Write the run of `matrix` with a row for each question, sampler and answer."""
    # Without the folder of videos rates are read in their place: the made files hold no frame.
    benchmarks = [benchmark.model_copy(update={"videos": ""}) for benchmark in matrix.benchmarks]
    sample = matrix.model_copy(update={"benchmarks": benchmarks, "models": [], "limit": CHOSEN})
    chosen = complete_run(sample, out=out.with_name("sample") / "run")
    run = RunFolder(out)
    out.mkdir(parents=True)
    n_questions_by_name = {benchmark.name: n_questions for benchmark in matrix.benchmarks}
    run.describe(matrix, engine="made", device="cpu", n_questions=n_questions_by_name)
    specs, answered = selection_specs(matrix), cells(matrix)
    run.show([*specs, *answered])
    for spec, chosen_spec in zip(specs, selection_specs(sample), strict=True):
        rows = list(chosen.selections(chosen_spec))
        with part_writer(run.part(spec), SelectionRow) as write:
            for number in range(n_questions):
                write(selection_row(rows[number % CHOSEN], number))
    for cell in answered:
        write_answers(run, cell, n_questions)


def selection_row(row: SelectionRow, number: int) -> SelectionRow:
    """Return the row under the number of another question about a video of the same length."""
    query = row.query.replace(row.question_id.removeprefix("q"), str(number))
    return replace(row, question_id=f"q{number}", video=f"v{number // QUESTIONS_PER_VIDEO}.mp4", query=query)


def write_answers(run: RunFolder, cell: AnswerSpec, n_questions: int) -> None:
    """Write a made answer for each selection of a cell: right to two questions of three, each sampler to others."""
    place = SAMPLERS.index(cell.selection.sampler.name)

    def rows() -> Iterator[AnswerRow]:
        for number, selection in enumerate(run.selections(cell.selection)):
            right = LETTERS[number % 4]
            is_right = (number * 7919 + (number // 5) * place * 104_729) % 3 > 0
            given = right if is_right else LETTERS[(number + 1) % 4]
            yield AnswerRow(
                benchmark=selection.benchmark, question_id=selection.question_id, video=selection.video,
                selection_id=selection.selection_id, cell_id=cell.id, cell=cell.name, model=cell.model.name,
                bucket=selection.bucket, frames_asked=selection.k, frames_chosen=len(selection.keyframes or ()),
                frames_fed=len(selection.keyframes or ()), fed_frames=selection.keyframes or [], answer=given,
                parsed=given, correct_answer=right, score=float(is_right), category="S2E",
                seconds={"generate": 0.01}, device="cpu",
            )  # fmt: skip

    with part_writer(run.part(cell), AnswerRow) as write:
        for row in rows():
            write(row)


if __name__ == "__main__":
    folder, n_questions = Path(sys.argv[1]), int(sys.argv[2])
    matrix = load_matrix(write_matrix(folder, n_questions))
    write_run(matrix, folder / "runs" / "load", n_questions)
