"""What pyproject.toml cannot say: `configs/` lies beside the package in a checkout, inside it in a wheel.

And Hydra looks for launchers in `hydra_plugins`, which it shares with other packages.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["pcr_exp", "pcr_exp.*"]),
        "pcr_exp.configs",
        "hydra_plugins.pcr_exp_launchers",
    ],
    package_dir={"pcr_exp.configs": "configs"},
)
