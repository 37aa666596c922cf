"""What people run in a checkout, `python -m experiments.train`; `pcr-exp train` is the same, installed."""
