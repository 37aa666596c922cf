"""Connection to a Ray cluster, for all code that runs work there."""

from __future__ import annotations

from typing import Any

from pcr_exp.errors import ConfigError


def connect_to_ray(address: str | None, key: str) -> Any:
    """Return the connected `ray` module. An existing connection is kept.

    Args:
        address: Address of a cluster; `auto` is that of RAY_ADDRESS or this machine; None starts one here.
        key: Setting that the address is from, for errors.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"{key}: Ray is not installed; pip install 'ray>=2.50', or pcr-exp[ray]."
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(
                address=address, log_to_driver=False, include_dashboard=False if address is None else None
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"{key}={address}: no Ray cluster answers there ({error}). Start one with `ray start "
                f"--head`, or use {key}=null, which starts one on this machine."
            ) from error
    return ray
