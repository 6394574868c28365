"""Answer a registry that asks who reads: by user and password, or by a token from the server that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urlencode

from launcher.registry.errors import Denied, Unreadable
from launcher.registry.keyring import Credentials
from launcher.registry.transport import Transport

_LIMIT = 1 << 20  # bytes of an answer with a token
_PARAMETER = re.compile(r'(?:^|[\s,])([A-Za-z]+)\s*=\s*(?:"([^"\\]*)"|([^\s,"]+))')
_CHALLENGE = re.compile(r"(?:^|,)\s*(bearer|basic)\b", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")  # a header can carry it
_CLIENT = "paddle-launcher"


def authorization(transport: Transport, challenge: str, repository: str, credentials: Credentials | None) -> str | None:
    """Return the Authorization header for a challenge (WWW-Authenticate), or None if there are no credentials for it.

    The token allows reading this repository only, whatever the registry asks for. Raises Unreadable, Denied.
    """
    schemes = {found[1].lower(): challenge[found.end() :] for found in reversed(list(_CHALLENGE.finditer(challenge)))}
    if "bearer" in schemes:
        return f"Bearer {_token(transport, _parameters(schemes['bearer']), repository, credentials)}"
    if "basic" not in schemes:
        raise Unreadable(f"{transport.host}: asks for a login of an unknown kind: {challenge!r:.100}")
    return credentials.basic if credentials and credentials.user else None


def _parameters(text: str) -> dict[str, str]:
    return {found[1].lower(): found[2] or found[3] or "" for found in reversed(list(_PARAMETER.finditer(text)))}


def _token(
    transport: Transport, parameters: Mapping[str, str], repository: str, credentials: Credentials | None
) -> str:
    realm = parameters.get("realm", "")
    if not realm:
        raise Unreadable(f"{transport.host}: asks for a token, and names no server that makes tokens")
    asked = {"service": parameters.get("service", ""), "scope": f"repository:{repository}:pull"}
    if credentials and credentials.identity_token:
        form = {"grant_type": "refresh_token", "client_id": _CLIENT, "refresh_token": credentials.identity_token}
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = transport.request("POST", realm, content_type, _LIMIT, urlencode(form | asked).encode())
    else:
        headers = {"Authorization": credentials.basic} if credentials else {}
        separator = "&" if "?" in realm else "?"
        answer = transport.request("GET", f"{realm}{separator}{urlencode(asked)}", headers, _LIMIT)
    server = realm.partition("?")[0][:200]
    if answer.status != 200:
        by = "with your credentials" if credentials else f"without credentials: `docker login {transport.host}`"
        raise (Denied if answer.status < 500 else Unreadable)(
            f"{transport.host}: {server} makes no token {by} (HTTP {answer.status})"
        )
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    token = (said.get("token") or said.get("access_token")) if isinstance(said, dict) else None
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise Unreadable(f"{transport.host}: {server}: expected JSON with a token")
    return token
