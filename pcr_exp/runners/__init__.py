"""Runners, one per kind of question: a configuration from the command line, and what answers it.

`pcr_exp.__main__` starts them by name, and so do the files of `experiments/` in a checkout.
"""

RUNNERS = {
    "prepare": "JPEG files become records; --check compares them",
    "tolerance": "which scan group a task tolerates, before any training",
    "train": "one training run, or a sweep with -m",
    "sweep": "how the jobs of a sweep stand, wherever they run",
    "evaluate": "what trained networks lose at scan groups and decode modes",
    "quality": "MS-SSIM, SSIM and bytes per scan group",
    "throughput": "loaders side by side, or what a cluster's would do",
    "figures": "figures and tables of runs and measurements on disk",
    "report": "which claims of the papers the committed results bear out",
    "activation_study": "what compressed activations cost and save on one batch",
    "gpu": "what only a GPU can show, in parts of minutes each",
    "demo": "the whole way on embedded images, in minutes on two CPU cores",
    "redraw": "every committed figure again, in a checkout",
    "catalogue": "the page that lists the experiments, in a checkout",
}
"""The name of each runner, which is its module's, and what it is for. Each module has a `main`."""
