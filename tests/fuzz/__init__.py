"""Readers of foreign bytes with inputs that no writer makes.

Each module is one target: `one_input(data)` must return for any bytes. Refusals are caught inside; any other exception
is a finding. `seeds()` returns inputs to begin with.

    make fuzz                                     every target, a million inputs each, coverage-guided
    python -m tests.fuzz segment --inputs 10000   one of them
"""
