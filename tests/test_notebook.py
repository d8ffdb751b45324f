"""The notebook of the documentation runs from top to bottom and ends in a picture."""

from __future__ import annotations

import pytest

from .pages import ROOT

pytestmark = pytest.mark.slow


def test_the_notebook_ends_in_a_contact_sheet_of_what_was_asked_for(tmp_path):
    import nbclient
    import nbformat

    notebook = nbformat.read(ROOT / "docs/first_picture.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    selecting = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    printed, sheet = (
        output for output in selecting.outputs if output.output_type != "stream" or output.name == "stdout"
    )
    # The cup of coffee is shown from second 5 to 10.
    seconds = [float(line.split()[3]) for line in printed.text.splitlines()]
    assert len(seconds) == 1
    assert 5 <= seconds[0] < 10
    assert 'src="data:image/png;base64,' in sheet.data["text/html"]
