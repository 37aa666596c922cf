"""Scan policies: one module each, the decision a pure function beside the state that it is made from."""
