"""Runs of the tests of reports, which the tests of this room read too."""

from tests.bench.report.conftest import by_length_run, demo_run, hostile_run, papers_run  # noqa: F401
