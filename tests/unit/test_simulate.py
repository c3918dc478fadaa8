"""The run loop: statuses, tables of runs that end early, faults, and a scenario that reproduces itself."""

import functools
import json
import subprocess
import sys

import pytest
from fake_engine import STEP_PS, FakeEngine

import fabemu
from fabemu.compile import compile_plan
from fabemu.errors import EngineFault, MachineError, OutputError
from fabemu.recorder import Recorder
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import BUDGET_HOPS, Simulation

SCENARIO = {
    "name": "small",
    "fabric": {"kind": "single-switch", "hosts": 4},
    "link": {"rate": "100Gbps", "delay": "600ns"},
    "workload": [{"kind": "incast", "receiver": "h0", "senders": ["h1", "h2", "h3"], "size": "100KB"}],
}


def simulation(output, **behaviour):
    scenario = scenario_from_dict(SCENARIO)
    engine = functools.partial(FakeEngine, **behaviour)
    return Simulation(scenario, compile_plan(scenario), output=output, engine=engine)


def info_of(path):
    return json.loads((path / "run.json").read_text())


def test_a_finished_run(tmp_path):
    run = simulation(tmp_path / "a.run").run()
    assert run.info["status"] == "finished" and run.info["ended_by"] == "drained"
    assert run.info["messages"] == {"count": 3, "done": 3, "failed": 0, "unfinished": 0, "not_run": 0}
    assert run.info["scenario"]["name"] == "small" and run.info["seed"] == 1
    assert run.flows.column("status").to_pylist() == ["done"] * 3
    assert run.pauses.num_rows == 3 and run.drops.num_rows == 0
    assert run.info["rows"] == {"flows": 3, "ports": 0, "pauses": 3, "drops": 0, "events": 0}
    for key in ("plan_digest", "digest", "version", "wall_seconds", "cpu_seconds", "peak_memory_bytes", "totals"):
        assert key in run.info
    assert not any(path.name.endswith(".new") for path in run.directory.iterdir())


def test_stop_marks_interrupted_and_keeps_all_messages(tmp_path):
    sim = simulation(tmp_path / "a.run", never_ends=True)
    run = sim.run(lambda _: None) if sim.stop("SIGINT") else sim.run()
    assert run.info["status"] == "interrupted" and run.info["ended_by"] == "SIGINT"
    assert run.flows.column("status").to_pylist() == ["not_run"] * 3
    assert run.flows.column("op").to_pylist() == [0, 1, 2]
    assert run.flows.column("fct_ps").null_count == 3


def test_status_is_running_until_the_end(tmp_path):
    sim = simulation(tmp_path / "a.run", never_ends=True)
    next(iter(sim.step("1us")))
    assert info_of(sim.directory)["status"] == "running"
    assert fabemu.load(sim.directory).flows.num_rows == 0
    assert "killed" in str(fabemu.load(sim.directory).summary())
    assert sim.close().info["status"] == "interrupted"
    assert sim.close() is sim.run_result


def test_steps_are_as_long_as_asked_and_carry_their_records(tmp_path):
    snapshots = list(simulation(tmp_path / "a.run").step(STEP_PS))
    assert [snapshot.now_ps for snapshot in snapshots] == [STEP_PS, 2 * STEP_PS, 3 * STEP_PS]
    assert [snapshot.messages_done for snapshot in snapshots] == [1, 2, 3]
    assert [snapshot.records["flows"]["op"].tolist() for snapshot in snapshots] == [[0], [1], [2]]
    assert all(len(repr(snapshot)) < 300 and "array" not in repr(snapshot) for snapshot in snapshots)
    assert snapshots[-1].done_share == 1.0


def test_failed_and_unfinished_messages_are_in_the_table(tmp_path):
    run = simulation(tmp_path / "a.run", failing=(1,)).run()
    assert run.flows.column("status").to_pylist() == ["done", "failed", "done"]
    assert run.info["messages"]["failed"] == 1
    assert run.flows.column("sender_done_ps").to_pylist()[1] is None


def test_a_fault_says_where_and_how_to_replay(tmp_path):
    with pytest.raises(EngineFault, match=r"time ran back at 77 ps, node 1, port 2; replay it with: fabemu run .*toml"):
        simulation(tmp_path / "a.run", fault_at=2).run()
    info = info_of(tmp_path / "a.run")
    assert info["status"] == "fault" and "time ran back" in info["error"]
    assert fabemu.load(tmp_path / "a.run").flows.column("status").to_pylist() == ["done", "not_run", "not_run"]


def test_a_broken_invariant_is_a_fault(tmp_path):
    with pytest.raises(EngineFault, match="broken invariant: conservation: sent 5, delivered 4; replay it with"):
        simulation(tmp_path / "a.run", broken=True).run()
    info = info_of(tmp_path / "a.run")
    assert info["status"] == "fault"
    assert [check["held"] for check in info["invariants"]] == [True, False]
    assert "BROKEN: conservation: sent 5" in str(fabemu.load(tmp_path / "a.run").summary())


def test_out_of_memory_marks_the_run_failed(tmp_path):
    with pytest.raises(MachineError, match="out of memory"):
        simulation(tmp_path / "a.run", error_at=2).run()
    assert info_of(tmp_path / "a.run")["status"] == "failed"


def test_a_full_disk_marks_the_run_failed(tmp_path, monkeypatch):
    sim = simulation(tmp_path / "a.run")

    def no_space(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fabemu.trace.pa.record_batch", no_space)
    with pytest.raises(MachineError, match=r"cannot write .*\.arrow: No space left on device"):
        sim.run()
    assert info_of(tmp_path / "a.run")["status"] == "failed"


def test_an_existing_run_stays(tmp_path):
    simulation(tmp_path / "a.run").run()
    before = {path.name: path.read_bytes() for path in (tmp_path / "a.run").iterdir()}
    with pytest.raises(OutputError, match="--force"):
        simulation(tmp_path / "a.run")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "a.run").iterdir()}


def test_a_block_that_fails_does_not_look_complete(tmp_path):
    with pytest.raises(ZeroDivisionError), simulation(tmp_path / "a.run", never_ends=True) as sim:
        next(iter(sim.step("1us")))
        1 / 0  # noqa: B018
    assert info_of(tmp_path / "a.run")["status"] == "failed"


# The real engine from here on.


def test_equal_runs_have_equal_tables(tmp_path):
    first, second = (fabemu.run(SCENARIO, tmp_path / name, trace="packets") for name in ("a", "b"))
    assert first.info["digest"] == second.info["digest"]
    for table in first.tables:
        assert (tmp_path / "a" / f"{table}.arrow").read_bytes() == (tmp_path / "b" / f"{table}.arrow").read_bytes()
    assert len(first.tables) == 6


def test_tables_do_not_depend_on_how_the_run_is_stepped(tmp_path, monkeypatch):
    whole = fabemu.run(SCENARIO, tmp_path / "a")
    monkeypatch.setattr("fabemu.simulate.BUDGET_HOPS", BUDGET_HOPS // 10_000)
    with fabemu.prepare(SCENARIO, tmp_path / "b") as sim:
        count = sum(1 for _ in sim.step("3us"))
    assert count > 3 and sim.run_result is not None
    assert sim.run_result.info["digest"] == whole.info["digest"]
    for table in whole.tables:
        assert whole.table(table).equals(sim.run_result.table(table))


FINE = {**SCENARIO, "trace": {"interval": "200ns"}}


@pytest.mark.parametrize("way", ["run", "step"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_run_that_goes_on_after_an_interrupt_has_all_rows(way, is_after, tmp_path, monkeypatch):
    """Before and after the engine is stepped, in a run or between two looks at it."""
    whole = fabemu.run(FINE, tmp_path / "a")
    monkeypatch.setattr("fabemu.simulate.BUDGET_HOPS", 20)
    sim = fabemu.prepare(FINE, tmp_path / "b")
    stepped, calls = sim._threads.run, 0

    def interrupted(stop_ps, budget):
        nonlocal calls
        calls += 1
        if calls in (3, 4, 9):
            if is_after:
                stepped(stop_ps, budget)
            raise KeyboardInterrupt
        return stepped(stop_ps, budget)

    monkeypatch.setattr(sim._threads, "run", interrupted)
    parts = []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            if way == "run":
                sim.run()
            else:
                parts += [snapshot.records for snapshot in sim.step("300ns")]
    result = sim.run()
    assert calls > 9 and result.info["status"] == "finished"
    assert result.info["digest"] == whole.info["digest"]
    assert whole.ports.num_rows > 50
    for table in whole.tables:
        assert whole.table(table).equals(result.table(table)), table


def test_rows_of_ports_go_straight_to_their_table(tmp_path, monkeypatch):
    drained = []
    record = Recorder.record

    def noting(recorder, records, engine):
        drained.append(len(records["ports"]))
        record(recorder, records, engine)

    monkeypatch.setattr(Recorder, "record", noting)
    result = fabemu.run(FINE, tmp_path / "a")
    # The last interval is closed when no room is lent any more.
    assert result.ports.num_rows > 50 and sum(drained[:-1]) == 0
    with fabemu.prepare(FINE, tmp_path / "b") as sim:
        kept = sum(len(snapshot.records["ports"]) for snapshot in sim.step("300ns"))
    assert kept == result.ports.num_rows


def test_a_run_reproduces_from_its_directory(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "flows.csv").write_text("src,dst,bytes,start_ps\nh1,h0,5000,0\nh2,h0,7000,100\n")
    (tmp_path / "in" / "sizes.txt").write_text("0 0\n1000 50\n9000 100\n")
    text = """
    seed = 5
    fabric = { kind = "single-switch", hosts = 4 }
    [[workload]]
    kind = "flow-file"
    path = "flows.csv"
    [[workload]]
    kind = "poisson"
    sizes = "sizes.txt"
    load = 0.2
    stop = "20us"
    """
    (tmp_path / "in" / "scenario.toml").write_text(text)
    first = fabemu.run(tmp_path / "in" / "scenario.toml", tmp_path / "a.run")
    assert sorted(path.name for path in (tmp_path / "a.run" / "inputs").iterdir()) == ["flows.csv", "sizes.txt"]
    (tmp_path / "in" / "flows.csv").unlink()
    (tmp_path / "in" / "sizes.txt").unlink()
    again = fabemu.run(tmp_path / "a.run" / "scenario.toml", tmp_path / "b.run")
    assert again.info["plan_digest"] == first.info["plan_digest"]
    assert again.info["digest"] == first.info["digest"]
    assert first.flows.equals(again.flows)


def test_without_output_the_directory_goes_with_the_run():
    run = fabemu.run(SCENARIO)
    directory = run.directory
    assert run.flows.num_rows == 3 and directory.is_dir()
    del run
    assert not directory.exists()


def test_until_leaves_messages_unfinished_and_counts_them(tmp_path):
    run = fabemu.run(SCENARIO, tmp_path / "a", overrides=['until="5us"'])
    assert run.info["status"] == "finished" and run.info["ended_by"] == "until"
    assert run.info["simulated_ps"] == 5 * 10**6
    assert run.flows.column("status").to_pylist() == ["unfinished"] * 3
    assert run.summary().sizes[0].unfinished == 3


def test_measure_marks_messages(tmp_path):
    flows = [{"src": "h1", "dst": "h0", "size": "1KB", "start": f"{start}us"} for start in (0, 10, 20)]
    scenario = {**SCENARIO, "measure": ["10us", "20us"], "workload": [{"kind": "flows", "flow": flows}]}
    run = fabemu.run(scenario, tmp_path / "a")
    assert dict(zip(run.flows["start_ps"].to_pylist(), run.flows["measured"].to_pylist(), strict=True)) == {
        0: False,
        10 * 10**6: True,
        20 * 10**6: False,
    }
    assert run.summary().sizes[0].count == 1


def test_trace_off_writes_no_table(tmp_path):
    run = fabemu.run(SCENARIO, tmp_path / "a", trace="off")
    assert run.tables == [] and run.info["messages"]["done"] == 3
    assert "packet hops" in str(run.summary())
    with pytest.raises(ValueError, match="not a trace level"):
        fabemu.run(SCENARIO, tmp_path / "b", trace="all")


def test_the_root_of_an_incast_is_the_receivers_port(tmp_path):
    scenario = {
        "fabric": {"kind": "dumbbell", "left": 8, "right": 2},
        "switch": {"buffer": "4MiB"},
        "nic": {"cc": {"kind": "none"}},
        "workload": [{"kind": "incast", "receiver": "h8", "senders": "h0:h7", "size": "1MB"}],
    }
    run = fabemu.run(scenario, tmp_path / "a")
    summary = run.summary()
    assert run.drops.num_rows == 0 and run.pauses.num_rows > 10
    # The trunk is paused by the receiver's switch, and pauses the senders in turn.
    assert summary.pause_roots.ports[0].port in ("sw1->h8", "sw0->sw1")
    assert {"sw1->h8", "h0->sw0"} <= set(run.ports["port"].to_pylist())
    assert summary.pauses is not None and summary.pauses.count == run.info["totals"]["xoffs"]


def test_peak_memory_is_that_of_this_process_and_not_of_the_one_that_started_it():
    command = "from fabemu.simulate import peak_memory_bytes; print(peak_memory_bytes())"
    ballast = bytearray(400 * 2**20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert 10 * 2**20 < int(done.stdout) < 300 * 2**20
