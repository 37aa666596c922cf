"""How many scans to read: the seam, each policy, and what it probes."""
