"""Fixtures of the tool's tests, which the tests of research use too."""

from tests.bench.report.conftest import by_length_run, demo_run, hostile_run, papers_run  # noqa: F401
from tests.conftest import frozen_imports, pytest_collection_modifyitems, shared, unsaved_figures  # noqa: F401
