"""What `doctor` runs in its pod. It prints one JSON object per fact, each on a line that begins with `paddle-doctor`.

The image may have no launcher and an old Python: this file needs only the standard library of Python 3.7.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

MARK = "paddle-doctor"
TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
VERSION_SECONDS, IMPORT_SECONDS, NAME_SECONDS, API_SECONDS = 30, 150, 20, 10
TAIL = 20  # lines of a failed import
MOST_NAMES = 1000  # entries of a folder
SIOCGIFADDR = 0x8915


def main(asked: dict[str, Any]) -> None:
    """Print the facts in this order. The volume comes last: a read from it may never return."""
    for what, find in (
        ("user", user),
        ("launcher", launcher),
        ("python", python),
        ("paddle", paddle),
        ("device", device),
        ("ports", ports),
        ("names", names),
        ("rights", rights),
        ("workdir", workdir),
        ("volume", volume),
        ("data", data),
    ):
        say(what, "begins", {})
        try:
            found = find(asked)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        say(what, "found", found)


def say(what: str, state: str, fields: dict[str, Any]) -> None:
    line = json.dumps({"what": what, "state": state, "fields": fields})
    sys.stdout.write(f"{MARK} {line}\n")
    sys.stdout.flush()


def user(asked: dict[str, Any]) -> dict[str, Any]:
    return {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups()}


def launcher(asked: dict[str, Any]) -> dict[str, Any]:
    """Where the launcher is, and its version."""
    path = shutil.which(str(asked["launcher"]))
    if path is None:
        return {"path": None}
    code, out, err = run([path, "version"], VERSION_SECONDS)
    return {"path": path, "version": out.strip(), "code": code, "error": last_lines(err)}


def python(asked: dict[str, Any]) -> dict[str, Any]:
    """The Python that runs the user's program, or the first one in PATH."""
    for name in candidates(asked):
        path = shutil.which(name)
        if path:
            code, out, err = run([path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], VERSION_SECONDS)
            return {"name": name, "path": path, "version": out.strip(), "code": code, "error": last_lines(err)}
    return {"name": candidates(asked)[0], "path": None}


def paddle(asked: dict[str, Any]) -> dict[str, Any]:
    """Paddle's version: that of the program `paddle` for v0, else what `import paddle` says."""
    if asked["mode"] == "v0":
        path = shutil.which("paddle")
        if path is None:
            return {"path": None}
        code, out, err = run([path, "version"], VERSION_SECONDS)
        return {"path": path, "version": (out.strip().splitlines() or [""])[0], "code": code, "error": last_lines(err)}
    found = python(asked)
    if not found["path"]:
        return {"path": None}
    program = "import paddle; print(); print('version', paddle.__version__, paddle.is_compiled_with_cuda())"
    code, out, err = run([str(found["path"]), "-c", program], IMPORT_SECONDS)
    words = (out.strip().splitlines() or [""])[-1].split()
    version, cuda = (words[1], words[2] == "True") if words[:1] == ["version"] and len(words) == 3 else ("", False)
    return {"path": found["path"], "version": version, "cuda": cuda, "code": code, "error": last_lines(err)}


def candidates(asked: dict[str, Any]) -> list[str]:
    program = str(asked["program"] or "")
    own = [program] if os.path.basename(program).startswith("python") else []
    return own or ["python3", "python"]


def device(asked: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            found[name] = []
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found[name].append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        for line in file:
            digits, _, _, scope, _, name = line.split()
            if scope == "00" or name == "lo":
                found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return {"devices": found, "pod_ip": os.environ.get("POD_IP", "")}


def ports(asked: dict[str, Any]) -> dict[str, Any]:
    """The ports on which no program can listen here, each with the reason."""
    taken = {}
    for port in list(asked["ports"]):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
                listening.bind(("", port))
                listening.listen(1)
        except OSError as error:
            taken[str(port)] = error.strerror or str(error)
    return {"taken": taken}


def names(asked: dict[str, Any]) -> dict[str, Any]:
    """The addresses of the API server's name, and of this pod's name in its Service if it has one."""
    found = {}
    for name in ("kubernetes.default", str(asked["name"] or "")):
        if name and asked["dns"]:
            found[name] = look_up(name)
    return {"found": found}


def look_up(name: str) -> dict[str, Any]:
    """Try for some seconds: cluster DNS learns of a new pod late, and remembers a name that it did not know."""
    until = time.time() + NAME_SECONDS
    while True:
        try:
            return {"addresses": sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})}
        except OSError as error:
            if time.time() > until:
                return {"addresses": [], "error": error.strerror or str(error)}
        time.sleep(1)


def rights(asked: dict[str, Any]) -> dict[str, Any]:
    """What the API server answers when this pod lists, watches and gets pods, as discovery does."""
    if not asked["api"]:
        return {"needed": False}
    if not os.path.exists(TOKENS + "/token"):
        return {"needed": True, "token": False}
    pods = f"/api/v1/namespaces/{urllib.parse.quote(str(asked['namespace']), safe='')}/pods"
    refused = {}
    for verb, path in (
        ("list", pods + "?limit=1"),
        ("watch", pods + "?watch=true&timeoutSeconds=1&limit=1"),
        ("get", pods + "/" + urllib.parse.quote(os.environ.get("HOSTNAME", "x"), safe="")),
    ):
        said = ask_api(path)
        if said:
            refused[verb] = said
    return {"needed": True, "token": True, "refused": refused}


def ask_api(path: str) -> str:
    """Return "" if the API server answers. A pod that it does not know is an answer."""
    with open(TOKENS + "/token") as file:
        token = file.read().strip()
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    place = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(f"https://{place}:{port}{path}", headers={"Authorization": "Bearer " + token})
    context = ssl.create_default_context(cafile=TOKENS + "/ca.crt")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=API_SECONDS) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        return "" if error.code == 404 else f"HTTP {error.code}: {message_of(error.read())}"
    except (OSError, ValueError) as error:
        return f"no answer: {getattr(error, 'reason', error)}"
    return ""


def message_of(body: bytes) -> str:
    try:
        return str(json.loads(body.decode("utf-8", "replace"))["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return body[:300].decode("utf-8", "replace")


def workdir(asked: dict[str, Any]) -> dict[str, Any]:
    path = str(asked["workdir"] or os.getcwd())
    return {"path": path, "exists": os.path.isdir(path), "writable": os.access(path, os.W_OK | os.X_OK)}


def volume(asked: dict[str, Any]) -> dict[str, Any]:
    """Whether this user can write to the job's folder `output`, or to the nearest folder above that exists."""
    if not asked["volume"]:
        return {"needed": False}
    root, folder = str(asked["volume"]), os.path.join(str(asked["job"]), "output")
    if not os.path.isdir(root):
        return {"needed": True, "mounted": False}
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    about = os.stat(folder)
    found = {"needed": True, "mounted": True, "folder": folder, "error": "", "job": os.path.isdir(str(asked["job"]))}
    found.update({"owner": about.st_uid, "group": about.st_gid, "mode": "%o" % (about.st_mode & 0o7777)})
    found["uid"], found["gid"] = os.getuid(), os.getgid()
    try:
        with tempfile.NamedTemporaryFile(prefix=".paddle-doctor-", dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        found["error"] = error.strerror or str(error)
        return found
    system = os.statvfs(folder)
    found["free"] = system.f_bavail * system.f_frsize
    return found


def data(asked: dict[str, Any]) -> dict[str, Any]:
    """Which of the shards 0 to N-1 are good, and which others there are. With `more`, these have no gaps."""
    if not asked["volume"]:
        return {"needed": False}
    job, wanted = str(asked["job"]), int(str(asked["shards"]))
    found: dict[str, Any] = {"needed": True, "missing": [], "empty": [], "more": [], "config": "", "error": ""}
    try:
        there = os.listdir(job)
    except OSError as error:
        found["error"] = error.strerror or str(error)
        return found
    for number in range(wanted):
        shard = os.path.join(job, str(number), "data")
        if not os.path.isdir(shard):
            found["missing"].append(number)
        elif not has_bytes(shard):
            found["empty"].append(number)
    others = [int(name) for name in there if name.isdigit() and len(name) < 9 and int(name) >= wanted]
    found["more"] = sorted(n for n in others if os.path.isdir(os.path.join(job, str(n), "data"))) if wanted else []
    if asked["more"] and found["more"]:
        found["missing"] += sorted(set(range(wanted, found["more"][-1])) - set(found["more"]))
    if asked["config"]:
        folder = os.path.join(job, str(asked["config"]))
        found["config"] = "" if os.path.isdir(folder) and os.listdir(folder) else folder
    found["there"] = sorted(there)[:20]
    return found


def has_bytes(folder: str) -> bool:
    """Return whether a file in the folder, or below it, has a byte. A folder with very many entries has."""
    seen = 0
    for place, _, files in os.walk(folder):
        for name in files:
            seen += 1
            with contextlib.suppress(OSError):
                if os.stat(os.path.join(place, name)).st_size:
                    return True
            if seen > MOST_NAMES:
                return True
    return False


def run(command: list[str], seconds: float) -> tuple[int, str, str]:
    """Return exit code, output and errors of a program that gets no input. Code 124: it took too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {seconds:.0f} s"
    except OSError as error:
        return 126, "", f"{command[0]}: {error.strerror or error}"
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL:])[-2000:]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
