"""How close the headroom bound is: searches for the traffic that uses most headroom."""
