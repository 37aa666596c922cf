"""Measures of the papers' claims: functions that claims.yaml names and that read committed files.

Every public function is a measure. It takes the committed files, the file that its claim names and the
claim's arguments. It returns a number per case, and none if nothing was measured.
"""
