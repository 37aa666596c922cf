"""How claims of the papers are measured: functions that claims.yaml names, of committed files.

Every public function is one. It takes the committed files, the file that its claim names and the claim's
arguments, and returns a number per case; none where nothing was measured.
"""
