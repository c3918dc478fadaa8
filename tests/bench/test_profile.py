"""Profiles are read right, and without tools the script says what is missing."""

from __future__ import annotations

import collections
import shutil

import pytest

from bench import profile

SCRIPT = """\
    7f0011 __pyx_f_6fabemu_5_core_6engine_window_step+0x11 (/build/engine.so)
    7f0011 __pyx_f_6fabemu_5_core_6engine_window_step+0x11 (/build/engine.so)
    7f0080 memcpy (/lib/libc.so.6)
"""
INLINED = """\
0x0000000000001011
__pyx_f_6fabemu_5_core_3mmu_mmu_admit
/build/engine.c:10
__pyx_f_6fabemu_5_core_6engine_window_step
/build/engine.c:90 (discriminator 2)
0x0000000000001020
plain
??:0
"""


def test_samples() -> None:
    assert profile.read_samples(SCRIPT) == {
        ("__pyx_f_6fabemu_5_core_6engine_window_step", 0x11, "/build/engine.so"): 2,
        ("memcpy", 0, "/lib/libc.so.6"): 1,
    }


def test_chains_of_inlined_functions_begin_outside() -> None:
    assert profile.read_inlined(INLINED) == {0x1011: ("engine.window_step", "mmu.mmu_admit"), 0x1020: ("plain",)}


@pytest.mark.parametrize(
    "mangled, plain",
    [
        ("__pyx_f_6fabemu_5_core_3mmu_mmu_admit", "mmu.mmu_admit"),
        ("__pyx_pw_6fabemu_5_core_6engine_6Engine_5run", "engine.Engine.5run"),
        ("memcpy", "memcpy"),
    ],
)
def test_names(mangled: str, plain: str) -> None:
    assert profile.plain_name(mangled) == plain


def test_folded_stacks() -> None:
    stacks = collections.Counter({("b", "c"): 2, ("a",): 1})
    assert profile.folded_text(stacks) == "a 1\nb;c 2\n"


@pytest.mark.parametrize(
    "arguments, there, message",
    [
        ([], [], "perf and valgrind are not installed"),
        (["--with", "callgrind"], ["perf", "nm", "addr2line"], "valgrind is not installed"),
        ([], ["perf", "nm"], "perf needs addr2line"),
        ([], ["valgrind"], "neither a scenario file nor one of clean-128"),
    ],
)
def test_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    there: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    assert profile.main(["nothing.toml", *arguments]) == 1
    assert message in capsys.readouterr().err
