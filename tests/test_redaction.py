"""Secrets are hidden, and nothing else is changed."""

from __future__ import annotations

import logging
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import pytest
from composing import SCHEMAS
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.errors import StorageError
from pcr_exp.redaction import (
    HIDDEN,
    RedactingFormatter,
    find_secret,
    is_secret_name,
    redacted,
    redacted_text,
    redacted_words,
)

SECRET = "hunter2x"
SECRET_NAMES = (
    *("secret", "secret_access_key", "aws_secret_access_key", "client_secret", "clientSecret", "token"),
    *("sas", "sas_token", "sastoken", "sas_key", "session_token", "access_key_id", "account_key"),
    *("api_key", "x-api-key", "password", "passwd", "pwd", "passphrase", "auth", "Authorization"),
    *("Proxy-Authorization", "connection_string", "connectionString", "credential", "credentials", "Cookie"),
    *("bearer_token", "service_account_key", "sig", "X-Amz-Signature", "X-Goog-Credential", "signature"),
)
NAMES = (
    *("region", "endpoint", "account_name", "client_id", "authority_id", "author", "tokenizer", "keyword"),
    *("aws_sse_kms_key_id", "web_identity_token_file", "token_endpoint", "service_account_path", "monkey"),
    *("num_workers", "se", "sp", "sv", "X-Amz-Date", "basis", "design", "signal"),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_stands_under_a_secret_name_is_hidden_at_any_depth(name: str) -> None:
    assert is_secret_name(name)
    for nest in (lambda value: value, lambda value: {"a": [{"b": value}]}):
        given_values = nest({name: SECRET, "region": "here"})
        assert redacted(given_values) == nest({name: HIDDEN, "region": "here"})
        assert find_secret(given_values, "options") is not None
    assert redacted({name: {"user": "me", "x": [SECRET, SECRET]}})[name] == {
        "user": HIDDEN,
        "x": [HIDDEN] * 2,
    }
    assert redacted_words([f"a.b.{name}={SECRET}", f"--{name}", SECRET, "c"]) == [
        *(f"a.b.{name}={HIDDEN}", f"--{name}", HIDDEN, "c"),
    ]
    assert redacted_words([f"a={{b:{{{name}:{SECRET},c:1}}}}"]) == [f"a={{b:{{{name}:{HIDDEN},c:1}}}}"]
    assert (
        redacted_text(f"https://host/a?b=1&{name}={SECRET}&c=2") == f"https://host/a?b=1&{name}={HIDDEN}&c=2"
    )


@pytest.mark.parametrize("name", ["Authorization", "Proxy-Authorization", "Cookie", "x-api-key"])
def test_headers_may_be_pairs(name: str) -> None:
    assert redacted({"headers": [[name, SECRET]]}) == {"headers": [[name, HIDDEN]]}
    assert find_secret({"headers": [(name, SECRET)]}, "options") == "options.headers"
    assert redacted({"classes": ["token", "cat"]}) == {"classes": ["token", "cat"]}


@pytest.mark.parametrize("name", ["key", "keys", "sse_customer_key", "label_key", "pass"])
def test_what_may_mean_other_things_is_a_secret_among_a_client_s_settings_alone(name: str) -> None:
    """Two runs that differ only in `dataset.label_key` must stay distinct."""
    assert is_secret_name(name, of_client=True)
    assert find_secret({"a": {name: SECRET}}, "options") == f"options.a.{name}"
    assert redacted({name: SECRET}) == {name: SECRET}
    assert redacted_words([f"dataset.{name}={SECRET}"]) == [f"dataset.{name}={SECRET}"]
    for word in (f"records.storage_options.{name}={SECRET}", f"+records.storage_options={{{name}:{SECRET}}}"):
        assert SECRET not in redacted_words([word])[0]


@pytest.mark.parametrize("name", NAMES)
def test_other_names_hide_nothing(name: str) -> None:
    assert not is_secret_name(name)
    assert redacted({name: SECRET}) == {name: SECRET}
    assert find_secret({name: [SECRET, {"x": 1}]}, "options") is None
    assert redacted_words([f"{name}={SECRET}", f"--{name}", SECRET]) == [
        f"{name}={SECRET}",
        f"--{name}",
        SECRET,
    ]


def test_switches_references_and_counts_are_no_secrets() -> None:
    harmless = {
        "skip_signature": True,
        "token": None,
        "max_tokens": 512,
        "key": "",
        "auth": "${oc.env:TOKEN}",
    }
    assert redacted(harmless) == harmless
    assert find_secret(harmless, "options") is None
    assert redacted({"password": 1234, "api_key": b"ab"}) == {"password": HIDDEN, "api_key": HIDDEN}
    words = ["a.skip_signature=true", "+b.token=${oc.env:TOKEN}", "a={no_token:false}"]
    assert redacted_words(words) == words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("http://me:hunter2x@host/a b", "http://***@host/a b"),
        ("http://hunter2x@host:80/a", "http://***@host:80/a"),
        ("https://me:hun@ter2x@host/a@2", "https://***@host/a@2"),
        ("s3://id:hunter2x@bucket/a", "s3://***@bucket/a"),
        ("abfs://container@account.dfs/a", "abfs://container@account.dfs/a"),
        ("see http://host/a, or mail me@host", "see http://host/a, or mail me@host"),
        ("('AWS_SECRET_ACCESS_KEY=hunter2x')", "('AWS_SECRET_ACCESS_KEY=***')"),
        ("AccountName=me;AccountKey=hunter2x==;End", "AccountName=me;AccountKey=***;End"),
        ("password = 1234 and max_tokens=12", "password = *** and max_tokens=12"),
        ("{'secret': 'hunter2x', \"b_token\": \"x\"}", "{'secret': '***', \"b_token\": \"***\"}"),
        ("Authorization: Basic hunter2x==", "Authorization: ***"),
        ("{'Authorization': 'Bearer hunter2x'}", "{'Authorization': '***'}"),
        ("sent Bearer hunter2x.hunter2x", "sent Bearer ***"),
        ("AWS_SKIP_SIGNATURE=true, images_key=abc", "AWS_SKIP_SIGNATURE=true, images_key=abc"),
    ],
)
def test_texts_lose_secrets_and_nothing_else(text: str, wanted: str) -> None:
    assert redacted_text(text) == wanted
    assert redacted_text(wanted) == wanted


@given(PLAIN)
def test_what_was_redacted_holds_no_secret(value: Any) -> None:
    once = redacted(value)
    assert redacted(once) == once
    for_client = redacted(value, of_client=True)
    assert find_secret(for_client, "options") is None
    assert (find_secret(value, "options") is None) == (for_client == value)


def settings_of(schema: type, prefix: str = "") -> list[str]:
    found = []
    for field in fields(schema):
        kind = get_type_hints(schema)[field.name]
        found.append(f"{prefix}{field.name}")
        if isinstance(kind, type) and is_dataclass(kind):
            found += settings_of(kind, f"{prefix}{field.name}.")
    return found


def test_no_setting_of_ours_is_called_as_a_secret() -> None:
    """Otherwise its value would be missing from `config.yaml`, and from the identity that names a run."""
    names = [name for schema in SCHEMAS.values() for name in settings_of(schema)]
    assert len(names) > 200
    assert [name for name in names if is_secret_name(name.rpartition(".")[2])] == []


def test_errors_and_logs_show_none() -> None:
    assert str(StorageError("http://me:hunter2x@host/a is gone")) == "http://***@host/a is gone"
    try:
        raise ValueError("http://me:hunter2x@host/b")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.INFO, "f", 1, "at %s", ("http://me:hunter2x@host/a",), info)
    shown = RedactingFormatter("%(message)s").format(record)
    assert shown.startswith("at http://***@host/a\nTraceback") and "hunter2x@" not in shown.replace(
        'raise ValueError("http://me:hunter2x@host/b")', ""
    )
