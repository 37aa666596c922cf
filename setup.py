"""What pyproject.toml cannot say: `configs/` lies beside the package in a checkout, inside it in a wheel.

Hydra looks for launchers in `hydra_plugins`, which it shares with other packages. And a library in C is built
where there is a compiler; without, nothing is missing but speed (pcr_exp/images/first_scans.py).
"""

from setuptools import Extension, find_packages, setup

setup(
    packages=[
        *find_packages(include=["pcr_exp", "pcr_exp.*"]),
        "pcr_exp.configs",
        "hydra_plugins.pcr_exp_launchers",
    ],
    package_dir={"pcr_exp.configs": "configs"},
    ext_modules=[
        Extension(
            "pcr_exp.images._first_scans",
            ["pcr_exp/images/first_scans.c"],
            optional=True,
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # it calls no Python: one file is for all versions
)
