"""How few scans a task tolerates, from frozen features of a pretrained network: no training run is needed.

`images` shows each image at every scan group, `features` is what the network makes of that, `classifier`
learns the label from the features of one group and is asked at every other, and `answer` says from its
predictions which group is enough. `experiments.tolerance` and the scan policy `tolerance` use it.
"""
