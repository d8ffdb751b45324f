"""Make a table: benchmarks, runs, the lmms-eval plugin, reports and the demo."""
