"""The options of the remote cache's nginx. tests/e2e/test_remote_cache.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.remote.nginx_cache import Settings, configuration, parse

PLAIN = Settings(directory=Path("/cache"), port=8980)
FULL = Settings(
    directory=Path("/the cache"),
    port=8980,
    address="0.0.0.0",
    writers=Path("/writers"),
    readers=Path("/readers"),
    certificate=Path("/server.pem"),
    key=Path("/server.key"),
    client_ca=Path("/authority.pem"),
    access_log=Path("/access.log"),
)


def test_each_option_is_in_the_configuration() -> None:
    """Prevents: an ignored password file, certificate or log, and writers who may only read."""
    text = configuration(FULL, "ci ci")
    lines = {line.strip() for line in text.splitlines()}
    assert lines >= {
        "user ci ci;",
        "listen 0.0.0.0:8980 ssl;",
        'ssl_certificate "/server.pem";',
        'ssl_certificate_key "/server.key";',
        'ssl_client_certificate "/authority.pem";',
        'access_log "/access.log" cache;',
        'root "/the cache/blobs";',
    }
    users = re.findall(r'(limit_except GET \{)|auth_basic_user_file "(.*)";', text)
    assert users == [("", "/readers"), ("limit_except GET {", ""), ("", "/writers")]
    assert FULL.url == "https://0.0.0.0:8980"


def test_default_configuration_is_minimal() -> None:
    """Prevents: a trial that needs passwords, certificates or root."""
    text = configuration(PLAIN)
    for word in ("auth_basic", "ssl", "log_format", "\nuser "):
        assert word not in text
    assert "listen 127.0.0.1:8980;" in text
    assert PLAIN.url == "http://127.0.0.1:8980"


@pytest.mark.parametrize(
    "wrong", [["--certificate", "c"], ["--key", "k"], ["--client-ca", "a"]], ids=lambda w: str(w[0])
)
def test_incomplete_tls_options_are_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a server that seems to check certificates and does not."""
    with pytest.raises(SystemExit):
        parse(["--nginx", "n", "--directory", "d", *wrong])
    assert "--certificate" in capsys.readouterr().err
