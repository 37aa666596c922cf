"""Savings and costs of data echoing (Choi et al. 2019): a table over seeds, and figures."""
