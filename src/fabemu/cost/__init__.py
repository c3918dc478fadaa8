"""What a run will cost, before it begins: packet hops, events, memory, traces, time."""
