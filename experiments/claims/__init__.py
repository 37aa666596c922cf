"""Claims of the papers and our verdicts on them, made from committed files alone.

claims.yaml declares each claim: its wording, what was published and how certain that is, and the function of
`measures` that returns the committed numbers which test it. One rule (`verdict`) derives all verdicts from
these numbers; none is written by hand.
"""
