"""What pyproject.toml cannot say: `configs/` lies beside the package in a checkout, inside it in a wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["pcr_exp", "pcr_exp.*"]), "pcr_exp.configs"],
    package_dir={"pcr_exp.configs": "configs"},
)
