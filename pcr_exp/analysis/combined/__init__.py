"""PCR and its neighbours in every combination: where bytes went, and what that cost.

`report` calls `page.write_combined`: one row per combination, one figure of bytes, seconds and accuracy.
"""
