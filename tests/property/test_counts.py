"""The count of examples."""

from __future__ import annotations

from tests.property.counts import Counts, counts, table

REPORT = """\
============================ Hypothesis Statistics =============================

tests/property/test_sonic.py::test_one:

  - during reuse phase (0.01 seconds):
    - Typical runtimes: ~ 1ms, of which < 1ms in data generation
    - 2 passing, 0 failing, and 1 invalid test cases

  - during generate phase (1.36 seconds):
    - Typical runtimes: ~ 10-14 ms, of which ~ 2 ms in data generation
    - 98 passing, 0 failing, and 29 invalid test cases
    - Events:
      * 3.14%, 100 passing

  - Stopped because settings.max_examples=100


tests/parity/test_two.py::test_two[a-1]:

  - during generate phase (0.10 seconds):
    - 7 passing examples, 1 failing examples, 0 invalid examples
"""


def test_examples_are_counted_over_phases_and_tests() -> None:
    found = counts(REPORT.splitlines())
    assert found == {
        "tests/property/test_sonic.py::test_one": Counts(100, 0, 30),
        "tests/parity/test_two.py::test_two[a-1]": Counts(7, 1, 0),
    }
    assert table(found).splitlines()[-1].split() == ["2", "tests", "107", "1", "30"]
    assert table({}).splitlines()[-1].split() == ["0", "tests", "0", "0", "0"]
