"""What pyproject.toml cannot say: `configs/` lies beside the package in a checkout, inside it in a wheel.

Hydra looks for launchers in `hydra_plugins`, which it shares with other packages. And libraries in C are
built where there is a compiler; without, nothing is missing but speed (pcr_exp/images/decoder.py and
pcr_exp/storage/local.py).
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
            f"pcr_exp.{package}._{name}",
            [f"pcr_exp/{package}/{name}.c"],
            extra_compile_args=["-O3"],
            optional=True,
            py_limited_api=True,
        )
        for package, name in (("images", "decoder"), ("storage", "many_reads"))
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # they call no Python: one file is for all versions
)
