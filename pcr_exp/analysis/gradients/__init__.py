"""What compressing gradients saves, and costs, beside the numbers that 3LC published.

`report` calls `page.write_gradient_report`: a table over seeds, and figures of time, speed-up and bits.
"""
