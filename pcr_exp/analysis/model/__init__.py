"""The throughput model of the PCR paper: what a cluster would do, and how right that is.

`experiments.throughput` calls it: `plan_page.report_plan` predicts for a described cluster;
`validation_page.report_validation` holds predictions against measured rates and finished runs.
"""
