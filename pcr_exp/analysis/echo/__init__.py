"""What data echoing saves, and costs (Choi et al. 2019).

`report` calls `page.write_echo_report`: a table over seeds, and the figure of what the runs differ in.
"""
