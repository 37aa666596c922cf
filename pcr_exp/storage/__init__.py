"""Where records lie and how fast they come: range reads, the throttle, counters."""
