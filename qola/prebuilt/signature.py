"""Signatures of records in minisign's format; `minisign -Vm FILE -P KEY` verifies them too."""

from __future__ import annotations

import os
from pathlib import Path

import minisign

from qola_base.errors import Finding, PrebuiltError, QolaError
from qola_base.files import UnfitFileError, bounded_bytes, write_if_changed, writing

SUFFIX = ".minisig"

_MAX_KEY = 1 << 16
_UNFIT = (minisign.Error, ValueError, OSError, UnfitFileError)


def read_public_key(text: str, folder: Path) -> minisign.PublicKey:
    """Return a public key from its text RW..., or from a file of `minisign -G` below a folder."""
    try:
        if (folder / text).exists():
            return minisign.PublicKey.from_bytes(bounded_bytes(folder / text, _MAX_KEY))
        return minisign.PublicKey.from_base64(text)
    except _UNFIT as error:
        raise QolaError(
            Finding(
                "--public-key or [prebuilt].public_key",
                f"{text}: {error}",
                "a public key of minisign: 56 characters that begin with RW, or a file with one",
                "qola keygen PREFIX writes PREFIX.pub",
            ),
            "the public key cannot be read",
        ) from None


def shown(key: minisign.PublicKey) -> str:
    """Return the text of a public key."""
    return str(key.to_base64(), "ascii")


def verify(
    data: bytes, signature: bytes | None, key: minisign.PublicKey, place: str, trusted: str
) -> None:
    """Verify the signature of a record and its trusted comment, or raise PrebuiltError."""
    found = "no signature"
    if signature is not None:
        try:
            parsed = minisign.Signature.from_bytes(signature)
            key.verify(data, parsed)
            if parsed.trusted_comment == trusted:
                return
            found = f"a signature of {parsed.trusted_comment!r}"
        except (minisign.Error, ValueError) as error:
            found = f"a signature that is not of this key and record: {error}"
    raise PrebuiltError(
        Finding(
            f"{place}{SUFFIX}",
            found,
            f"a signature by the public key {shown(key)}",
            "do not use it; whoever publishes signs with qola publish --secret-key FILE, and "
            "--no-prebuilt builds",
        )
    )


def trusted_comment(record: str) -> str:
    """Return the trusted comment of the signature of a record with this file name."""
    return f"file:{record}"


def read_secret_key(path: Path, password: str) -> minisign.SecretKey:
    """Return the decrypted key in a file of `qola keygen` or `minisign -G`."""
    try:
        key = minisign.SecretKey.from_bytes(bounded_bytes(path, _MAX_KEY))
        if key.is_encrypted():
            key.decrypt(password)
    except _UNFIT as error:
        raise QolaError(
            Finding(
                str(path),
                str(error),
                "a secret key of minisign; the password of an encrypted one is in "
                "QOLA_PREBUILT_PASSWORD",
                "qola keygen PREFIX writes PREFIX.key",
            ),
            "the secret key cannot be read",
        ) from None
    return key


def sign(data: bytes, key: minisign.SecretKey, record: str) -> bytes:
    """Return the signature file of a record. Signatures are deterministic."""
    return bytes(key.sign(data, trusted_comment=trusted_comment(record))) + b"\n"


def write_pair(prefix: Path, password: str) -> minisign.PublicKey:
    """Write a new pair of keys, PREFIX.key (mode 0600, encrypted with a password) and PREFIX.pub.

    Raises QolaError if a file exists, OSError if one cannot be written; then both are removed.
    """
    secret, public = (prefix.with_name(f"{prefix.name}{end}") for end in (".key", ".pub"))
    for path in (secret, public):
        if path.exists():
            raise QolaError(
                Finding(str(path), "is there already", "a new file", "name another PREFIX"),
                "no key is overwritten",
            )
    pair = minisign.KeyPair.generate()
    if password:
        pair.secret_key.encrypt(password)
    # The secret key last, private from the start; if it fails, the public key is removed.
    try:
        write_if_changed(public, bytes(pair.public_key) + b"\n")
        with (
            writing(secret),
            open(os.open(secret, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file,
        ):
            file.write(bytes(pair.secret_key) + b"\n")
    except OSError:
        for path in (secret, public):
            path.unlink(missing_ok=True)
        raise
    return pair.public_key
