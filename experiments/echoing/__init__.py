"""What data echoing saves, and costs (Choi et al. 2019): a table over seeds, and figures."""
