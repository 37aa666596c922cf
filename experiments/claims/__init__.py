"""Claims of the papers, and how they came out here: a table of verdicts made from committed files alone.

claims.yaml declares each: its words, what was published and how sure that is, and the function of `measures`
that gives the committed numbers which test it. The verdict follows from them by one rule (`verdict`); none is
written by hand.
"""
