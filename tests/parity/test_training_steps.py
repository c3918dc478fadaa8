"""Training steps in both engines: hundreds of operations that wait for what others send and compute."""

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.compile import compile_plan
from fabemu.scenario import scenario_from_dict
from tests.oracle.simulator import simulate
from tests.parity.compare import assert_same, run_core

SHAPE = {"layers": 2, "hidden": 64, "feed_forward": 128, "heads": 4, "vocabulary": 100, "experts": 2, "top_k": 1}


@pytest.mark.parametrize("sharded", ["none", "optimizer", "full"])
@pytest.mark.parametrize("overlap", [True, False])
def test_core_agrees_with_the_oracle(sharded, overlap) -> None:
    table = {
        "kind": "training",
        "shape": SHAPE,
        "sequence": 32,
        "micro_batches": 3,
        "tensor": 2,
        "pipeline": 2,
        "expert": 2,
        "forward_time": "3us",
        "bucket": "20KB",
        "sharded": sharded,
        "overlap": overlap,
        "steps": 2,
    }
    fabric = {"kind": "rail", "nodes": 4, "gpus_per_node": 4, "spines": 2}
    plan = compile_plan(scenario_from_dict({"fabric": fabric, "scale_up": {}, "workload": [table]})).plan
    core = run_core(plan)
    assert_same(plan, simulate(plan), core)
    assert core.digest and [verdict for verdict in core.verdicts if not verdict[1]] == []
