"""Signs statements with a key of one's own, as DSSE envelopes, and checks them; needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.beside.export.folder import ExportError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ENVELOPE = "provenance.dsse.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def sign(statement: bytes, key: Path) -> bytes:
    """Returns the envelope of a statement.

    Args:
        key: an Ed25519 private key in PEM, without a password.

    Raises:
        ExportError: it is none, or ``cryptography`` is missing.
    """
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private = _loaded(key, lambda text: load_pem_private_key(text, None))
    if not isinstance(private, Ed25519PrivateKey):
        raise ExportError(f"{key} is no Ed25519 private key; `openssl genpkey -algorithm ed25519` makes one.")
    content = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(statement).decode(),
        "signatures": [
            {
                "keyid": _name(private.public_key()),
                "sig": base64.b64encode(private.sign(_encoded(statement))).decode(),
            }
        ],
    }
    return json.dumps(content, indent=1).encode() + b"\n"


def opened(envelope: bytes, key: Path) -> bytes:
    """Returns the statement of an envelope that a key signed.

    Args:
        key: the Ed25519 public key in PEM.

    Raises:
        ExportError: it is none, did not sign it, or ``cryptography`` is missing.
    """
    _need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    public = _loaded(key, load_pem_public_key)
    if not isinstance(public, Ed25519PublicKey):
        raise ExportError(f"{key} is no Ed25519 public key; `openssl pkey -in KEY.pem -pubout` writes it.")
    try:
        content = json.loads(envelope)
        if content["payloadType"] != PAYLOAD_TYPE:
            raise ValueError(f"its payload is {content['payloadType']}")
        statement = base64.b64decode(content["payload"], validate=True)
        signatures = [base64.b64decode(each["sig"], validate=True) for each in content["signatures"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ExportError(
            f"{ENVELOPE} is no envelope of a statement ({type(error).__name__}: {error})."
        ) from None
    for signature in signatures:
        try:
            public.verify(signature, _encoded(statement))
            return statement
        except InvalidSignature:
            continue
    raise ExportError(f"{key} did not sign {ENVELOPE}, or it was changed since.")


def _encoded(statement: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding (https://github.com/secure-systems-lab/dsse)."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(statement), statement)


def _name(public: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _loaded(path: Path, load: Any) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(path.read_bytes())
    except OSError as error:
        raise ExportError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ExportError(f"{path} is no key in PEM without a password ({error}).") from None


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ExportError(
            "Signatures need cryptography; run `pip install 'pytest-kernelllm[sign]'`."
        ) from None
