"""Tables, figures and pages from files of finished runs and measurements: one room per question, on one core.

`report.write_report` writes all that a folder of runs allows; `experiments.figures` and the demo call it.
"""
