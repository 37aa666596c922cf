"""Tables and figures of finished runs and measurements: accuracy, quality, tolerance, throughput, plans.

`report.write_report` writes every table and figure that a folder of runs has data for. `frame` holds the runs
as rows. Figures share `style`, `marks` and `figure`; tables share `tables`.
"""
