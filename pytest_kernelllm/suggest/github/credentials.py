"""Finds credentials that code in a job could read: in the environment, in git's configuration, in the home folder.

Nothing here returns a credential, only where it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pytest_kernelllm.core.git import git_says

_SECRET = re.compile(
    r"(^|_)(TOKENS?|SECRETS?|PASS|PASSWD|PASSWORDS?|PASSPHRASE|PAT|PATS|KEY|KEYS|CREDS|CREDENTIALS?|AUTH|DSN|JWT)(_?\d+)?$"
    r"|_(TOKEN|SECRET|PASSWORD|CREDENTIALS|AUTH|KEY)_(FILE|JSON|BASE64|B64|PATH)$"
    r"|APIKEY$|PGPASSWORD$|^(SSH_AUTH_SOCK|NETRC|DOCKER_AUTH_CONFIG|KUBECONFIG|GOOGLE_GHA_CREDS_PATH)$"
    r"|^AWS_(ACCESS_KEY_ID|SESSION_TOKEN|WEB_IDENTITY_TOKEN_FILE|CONTAINER_CREDENTIALS_\w+)$"
    r"|^ACTIONS_ID_TOKEN_REQUEST_URL$|CONNECTION_?STRING$|(^|_)SAS(_TOKEN|_URL)?$"
)
"""Of an environment variable's name in capital letters."""
_WITH_LOGIN = re.compile(r"[a-z][a-z+.-]*://[^/@\s]+:[^/@\s]+@", re.IGNORECASE)
"""An address with user and password, as for a proxy, a database or a package index."""
_TOKENS = re.compile(
    r"\b(gh[pousr]_\w{30,}|github_pat_\w{40,}|hf_[A-Za-z]{30,}|glpat-[\w-]{20,}|AKIA[0-9A-Z]{16}|xox[abps]-\S{10,}"
    r"|sk-[\w-]{30,}|pypi-\S{50,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Forms in which well-known services write their tokens, whatever the variable's name."""

_IN_HOME = (
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh/hosts.yml",
    ".aws/credentials",
    ".config/gcloud/application_default_credentials.json",
    ".config/gcloud/credentials.db",
    ".azure/msal_token_cache.json",
    ".kube/config",
    ".pypirc",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".ssh/id_rsa",
    ".ssh/id_ecdsa",
    ".ssh/id_ed25519",
)


def in_environment(environ: Mapping[str, str]) -> list[str]:
    """Returns the names of variables that hold a credential, by their names or by what is in them."""
    return sorted(
        name
        for name, value in environ.items()
        if value and (_SECRET.search(name.upper()) or _WITH_LOGIN.search(value) or _TOKENS.search(value))
    )


def in_home(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields files in the user's home folder in which programs keep logins."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    for name in _IN_HOME if home else ():
        file = Path(home or "", name)
        if file.is_file() and os.access(file, os.R_OK) and file.stat().st_size:
            yield f"the file ~/{name}"


def in_git(folder: Path, server: str) -> Iterator[str]:
    """Yields the settings of git by which code in a checkout gets a login, and the files that they are in.

    A helper that the machine's own configuration names (``/etc/gitconfig``), as some installations of git do, counts
    only if it has a login for the server.
    """
    helpers: dict[str, tuple[str, str]] = {}
    for scope, origin, key, value in _settings(folder):
        where = f"`{key}` in {origin}"
        if re.fullmatch(r"http\.(.*\.)?(extraheader|cookiefile)", key) and value:
            yield where
        elif re.fullmatch(
            r"(remote|submodule)\..*\.(push)?url|url\..*\.(push)?insteadof|http\.(.*\.)?proxy", key
        ):
            if _has_login(value) or _has_login(key.partition(".")[2]):
                yield f"a login in `{re.sub(r'//[^/@]*@', '//…@', key)}` in {origin}"
        elif re.fullmatch(r"credential\.(.*\.)?helper", key):
            if value:
                helpers[where] = scope, key
            else:  # an empty value resets the list
                helpers = {where: held for where, held in helpers.items() if held[1] != key}
    own = [where for where, (scope, _) in helpers.items() if scope != "system"]
    yield from own
    if helpers and not own and _fills(folder, server):
        yield next(iter(helpers))


def _settings(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yields scope, file, key and value of everything that git reads in a folder."""
    done = git_says(folder, "config", "--includes", "--show-scope", "--show-origin", "--null", "--list")
    parts = done.split("\0")
    for scope, origin, entry in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
        key, _, value = entry.partition("\n")
        yield scope, origin.removeprefix("file:"), key, value


def _has_login(address: str) -> bool:
    """Whether an address over HTTP names a user or a password; over SSH a user is no secret."""
    parts = urlsplit(address) if address.lower().startswith(("http://", "https://")) else None
    return parts is not None and "@" in parts.netloc


def _fills(folder: Path, server: str) -> bool:
    """Whether git's helpers have a password for the server."""
    parts = urlsplit(server)
    asked = f"protocol={parts.scheme}\nhost={parts.netloc}\n\n"
    return bool(re.search(r"^password=.", git_says(folder, "credential", "fill", stdin=asked), re.MULTILINE))
