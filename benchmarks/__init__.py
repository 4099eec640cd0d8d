"""Speed beside a peer: both run in one process, on the same input, warm.

Run one with ``python -m benchmarks.<name>``. Each prints a table and, as its last line, JSON.
Seconds depend on the machine; only the ratios are meant to be compared.
"""
