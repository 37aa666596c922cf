"""Where credentials for records belong: in environment variables, which depend on the kind of address."""

from __future__ import annotations

import os

HTTP_AUTHORIZATION = "PCR_EXP_HTTP_AUTHORIZATION"
"""Environment variable with the `Authorization` header of requests to http:// and https://."""

_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with AWS_SESSION_TOKEN if they are temporary",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, the path of a key file",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
    "hf": "HF_TOKEN, or log in with `hf auth login`",
    "http": f"{HTTP_AUTHORIZATION}, such as 'Bearer ...'",
}
_PUBLIC = {"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}
_SAME = {"s3a": "s3", "gcs": "gs", "https": "http", "abfs": "az", "abfss": "az", "azure": "az", "adl": "az"}


def credential_variables(address: str = "") -> str:
    """Return a phrase with the credential variables for an address, or for all kinds of address if empty."""
    scheme = address.partition("://")[0]
    known = _VARIABLES.get(_SAME.get(scheme, scheme))
    return known or "; ".join(f"{name}://: {variables}" for name, variables in _VARIABLES.items())


def is_unsigned(address: str) -> bool:
    """Whether the environment says that requests to an object store go without credentials."""
    scheme = address.partition("://")[0]
    said = os.environ.get(_PUBLIC.get(_SAME.get(scheme, scheme), ""), "")
    return said.lower() in ("true", "1")


def how_to_give_credentials(address: str) -> str:
    """Return advice, as a sentence, for an address that needs credentials, or other ones than given."""
    scheme = address.partition("://")[0]
    kind = _SAME.get(scheme, scheme)
    public = f"; for a public bucket, {_PUBLIC[kind]}=true" if kind in _PUBLIC else ""
    files = "; ~/.aws is not read" if kind == "s3" else ""
    return f"Set in the environment: {credential_variables(address)}{public}{files}."
