"""The order in which the stages of a pipeline go through the micro-batches of a step."""

from __future__ import annotations

from collections.abc import Iterator

Pass = tuple[bool, int]
"""Whether it is backward, and the micro-batch."""


def stage_order(stage: int, stages: int, micro_batches: int, schedule: str = "1f1b") -> list[Pass]:
    """What one stage does in a step.

    "1f1b" (Narayanan et al., arXiv:2104.04473, section 2.2): as many forward passes as there are stages behind, then
    one forward and one backward in turn, then the backward passes that are left. "gpipe" (Huang et al.,
    arXiv:1811.06965): all forward passes, then all backward. Both keep the order of the
    micro-batches in either direction.
    """
    ahead = micro_batches if schedule == "gpipe" else min(stages - 1 - stage, micro_batches)
    order: list[Pass] = [(False, number) for number in range(ahead)]
    for number in range(micro_batches - ahead):
        order += [(False, ahead + number), (True, number)]
    return order + [(True, number) for number in range(micro_batches - ahead, micro_batches)]


def step_order(stages: int, micro_batches: int, schedule: str = "1f1b") -> Iterator[tuple[int, bool, int]]:
    """What all stages do in a step, (stage, backward, micro-batch): each after what it needs of its neighbours."""
    orders = [stage_order(stage, stages, micro_batches, schedule) for stage in range(stages)]
    place = [0] * stages
    done: set[tuple[int, bool, int]] = set()
    left = sum(len(order) for order in orders)
    while left:
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                backward, number = order[place[stage]]
                source = stage + 1 if backward else stage - 1
                if 0 <= source < stages and (source, backward, number) not in done:
                    break
                yield stage, backward, number
                done.add((stage, backward, number))
                place[stage] += 1
                left -= 1


def layers_of_stages(layers: int, stages: int) -> list[int]:
    """Layers of every stage: as even as can be, the first stages have one more; the last one has the output layer."""
    share, rest = divmod(layers, stages)
    return [share + (stage < rest) for stage in range(stages)]


def ideal_bubble(stages: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits if sending takes no time and all stages take as long as each other."""
    return (stages - 1) / (micro_batches + stages - 1)
