"""The oracle alone on random plans: its own assertions (MODEL 14) must hold."""

from hypothesis import given

from fabemu.plan import OP_SCALE_UP, VERB_READ, Plan
from tests.oracle.simulator import simulate, simulate_bounded
from tests.property.strategies import FEATURES, PACKET_LIMIT, example_settings, plans, tag


@example_settings(0.5)
@given(plans(FEATURES))
def test_invariants_hold_on_random_plans(plan: Plan) -> None:
    _, result = simulate_bounded(plan, PACKET_LIMIT)
    tag(result)
    assert all(row[4] >= row[2] and row[4] >= row[0] for row in result.pauses), "a pause ends before it starts"
    ops = result.ops
    columns = [ops[name] for name in ("posted_ps", "first_sent_ps", "delivered_ps", "done_ps", "status")]
    rows = zip(plan.op_kind, plan.op_qp, zip(*columns, strict=True), strict=True)
    for kind, qp, (posted, sent, delivered, done, status) in rows:
        if kind == OP_SCALE_UP and status == 2:
            # Its sender does not wait for its receiver, which may lie beyond the end of the run.
            assert posted <= sent <= done and (delivered < 0 or done < delivered)
        elif status == 2 and sent >= 0:
            assert posted <= sent < delivered
            assert (delivered == done) if plan.qp_verb[qp] == VERB_READ else (delivered < done)


@example_settings(0.1)
@given(plans(FEATURES))
def test_the_same_plan_gives_the_same_run(plan: Plan) -> None:
    plan, first = simulate_bounded(plan, PACKET_LIMIT // 4)
    assert simulate(plan) == first
