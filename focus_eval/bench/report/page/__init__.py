"""The HTML page of a report: charts, tables, and a browser of questions."""
