"""What users measure on their own data without training: quality, tolerance, evaluation, throughput."""
