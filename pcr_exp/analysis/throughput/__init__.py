"""How fast loaders are: ours at each scan group, and its peers.

`experiments.throughput` calls `table.write_throughput` with what it measured, and `page.report_throughput`.
"""
