"""Readers of foreign bytes against inputs that no writer makes.

Each module is one target: `one_input(data)` must return, whatever the bytes, or raise one of nothing: refusals are
caught inside, any other exception is a finding. `seeds()` gives inputs to begin with.

    make fuzz                                     every target, a million inputs each, coverage-guided
    python -m tests.fuzz segment --inputs 10000   one of them
"""
