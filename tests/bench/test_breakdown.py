"""The breakdown reads profiles and generated code right."""

from __future__ import annotations

import shutil

import pytest

from bench import breakdown

C_TEXT = """\
int before;
  /* "fabemu/_core/nic.pxd":12
 * cdef inline int nic_step():
*/
  first();
  second();
/* "fabemu/_core/engine.pyx":3
 */
"""

PROFILE = """\
positions: line
events: Ir
fl=(1) /build/engine.c
fn=(1) run
5 10
+1 4
cfn=(2)
calls=1 90
* 1000
fi=(2) string.c
7 50
fe=(1)
-1 2
* 3
"""


def test_lines_of_generated_code() -> None:
    origins = breakdown.line_origins(C_TEXT)
    assert origins[1] is None
    assert origins[5] == origins[6] == ("nic.pxd", 12)
    assert origins[8] == ("engine.pyx", 3)


def test_costs_of_one_file_without_its_calls() -> None:
    assert breakdown.read_callgrind(PROFILE, "engine.c") == {5: 10, 6: 4 + 2 + 3}


def test_function_of_a_line() -> None:
    source = "cdef inline int one(int x):\n    return x\n\ncdef class Engine:\n    def run(self):\n        pass\n"
    assert breakdown.functions_of(source) == ["", "one", "one", "one", "one", "run", "run"]


def test_without_tools_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert breakdown.main(["incast-128", "--smoke"]) == 1
    assert "neither valgrind nor perf" in capsys.readouterr().err
