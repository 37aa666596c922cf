"""How few scans a task tolerates, from frozen features of a pretrained network, without a training run.

`images` decodes each image at every scan group, and `features` runs the network on it. `classifier` learns
the label from the features of one group and is tested at every group. `answer` derives from its predictions
which group is enough. `experiments.tolerance` and the scan policy `tolerance` use this package.
"""
