"""What a run costs is known before it: fixed memory to the byte, on any fabric."""

from __future__ import annotations

from fabemu._core.engine import Engine
from hypothesis import event, given
from hypothesis import strategies as st

from fabemu.cost.footprint import counts_of, footprint
from tests.property.strategies import IN_CORE, example_settings, plans


@given(data=st.data())
@example_settings(share=0.3)
def test_fixed_memory_is_known_to_the_byte(data):
    plan = data.draw(plans(IN_CORE))
    threads = data.draw(st.integers(1, 3))
    engine = Engine(plan, threads=threads)
    before = engine.memory_bytes()
    predicted = footprint(counts_of(plan, threads))
    for kind in ("actions", "weights", "credits", "receivers", "watchdogs", "reads"):
        if getattr(counts_of(plan), kind):
            event(kind)
    assert before["fabric"] == predicted.fabric + predicted.accounts
    assert before["operations"] == predicted.operations
    engine.run(plan.until_ps, 2_000)
    assert engine.memory_bytes()["fabric"] == before["fabric"], "the fixed part stays as it is"
