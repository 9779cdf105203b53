"""The configuration of the remote cache's nginx. tests/e2e/test_remote_cache.py uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.remote.nginx_cache import Settings, configuration, parse

GOLDEN = Path(__file__).resolve().parent / "golden/nginx.conf"
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


def test_full_configuration_is_golden() -> None:
    """Prevents: an unnoticed change of the configuration that administrators copy."""
    assert configuration(FULL, "ci ci") == GOLDEN.read_text(encoding="utf-8")
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
