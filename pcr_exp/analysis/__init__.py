"""Finished runs and measurements as tables and figures: accuracy, quality, tolerance, throughput, plan.

`report.write_report` writes all that a folder of runs allows. `frame` has the runs as rows, `style`, `marks`
and `figure` what figures share, `tables` what tables share.
"""
