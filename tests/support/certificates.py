"""Certificates as cert-manager writes them: folders with tls.crt, tls.key and ca.crt. And those of a registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class CertificateAuthority:
    """An authority whose key is in its own folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._key, self.certificate = folder / "ca.key", folder / "ca.crt"
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl("req", "-x509", *_CURVE, *usage, "-days", 2, "-subj", "/CN=job", *self._out(self._key))

    def issue(self, folder: Path, *, days: int = 2, usage: str = "serverAuth,clientAuth") -> Path:
        """Write a certificate, its key and the authority to a folder, and return the folder. Replace what is there."""
        new = folder.with_name(f"{folder.name}.new")
        new.mkdir()
        request, extensions = new / "request", new / "extensions"
        _openssl("req", *_CURVE, "-keyout", new / "tls.key", "-out", request, "-subj", "/CN=launcher")
        extensions.write_text(f"authorityKeyIdentifier=keyid\nextendedKeyUsage={usage}\n")
        sign = ("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        _openssl(*sign, "-days", days, "-extfile", extensions, "-out", new / "tls.crt")
        shutil.copy(self.certificate, new)
        folder.mkdir(exist_ok=True)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            os.replace(new / name, folder / name)
        shutil.rmtree(new)
        return folder

    def _out(self, key: Path) -> tuple[object, ...]:
        return "-keyout", key, "-out", self.certificate


def server_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate for these host names, and of its key."""
    key, certificate = folder / "tls.key", folder / "tls.crt"
    names_in = "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)
    out = ("-keyout", key, "-out", certificate, "-days", 2, "-subj", "/CN=registry", "-addext", names_in)
    _openssl("req", "-x509", *_CURVE, *out)
    return certificate, key


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
