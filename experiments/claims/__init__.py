"""Claims of the papers, and how they came out here: a table of verdicts made from committed files alone.

`experiments.report` calls `page.write_claims`. A claim is declared in the file of its paper (`pcr_speed`,
`pcr_accuracy`, `pcr_policies`, `echoing`, `threelc`, `comet`): its words, what was published and how sure
that is, and which committed numbers test it (`committed`). The verdict follows from these numbers by one rule
(`verdict`); none is written by hand.
"""
