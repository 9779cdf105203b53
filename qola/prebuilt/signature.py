"""Signatures of records, in minisign's format: `minisign -Vm FILE -P KEY` takes them too."""

from __future__ import annotations

import os
from pathlib import Path

import minisign

from qola.errors import Finding, PrebuiltError, QolaError
from qola.files import UnfitFileError, bounded_bytes, write_if_changed, writing

SUFFIX = ".minisig"

_MAX_KEY = 1 << 16
_UNFIT = (minisign.Error, ValueError, OSError, UnfitFileError)


def read_public_key(text: str, folder: Path) -> minisign.PublicKey:
    """Return a public key: RW..., or in a file below a folder, as `minisign -G` writes it."""
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
    """Return a public key as text."""
    return str(key.to_base64(), "ascii")


def verify(
    data: bytes, signature: bytes | None, key: minisign.PublicKey, place: str, trusted: str
) -> None:
    """Check the signature file of a record; one with another trusted comment is another file's.

    Raises:
        PrebuiltError: there is none, or it is not of this key, or not of this record.
    """
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
    """Return the signature file of a record; the same for the same record and key."""
    return bytes(key.sign(data, trusted_comment=trusted_comment(record))) + b"\n"


def write_pair(prefix: Path, password: str) -> minisign.PublicKey:
    """Write a new pair of keys, PREFIX.key (for its owner alone) and PREFIX.pub.

    A password encrypts the secret one; files that are there already raise QolaError.

    Raises:
        OSError: they cannot be written; then there is none.
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
    # The secret one last, for nobody else's eyes from the start; of half a pair nothing is left.
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
