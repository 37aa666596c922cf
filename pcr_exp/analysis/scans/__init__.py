"""How few scans suffice: accuracy, time to accuracy and bytes at each scan group.

`report` and `experiments.figures` call it: `table.summary_table` over seeds, `page.to_markdown`, figures of
accuracy against time, epochs and image quality, one setting compared (`comparison`), one run (`one_run`).
"""
