"""How many scans to read: the policy interface, the policies, and their probes."""
