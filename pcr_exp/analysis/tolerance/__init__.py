"""What a task tolerates, as frozen features tell it before any training: tables, figures, and a page.

`experiments.tolerance` calls `page.write_tolerance` with what `pcr_exp.measuring.tolerance` measured.
`pcr_exp.analysis.scans.accuracy_vs_mssim` asks the same of finished training runs.
"""
