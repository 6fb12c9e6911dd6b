"""Who may use the service, and what a browser may do with its answers.

Without a token only requests to a loopback name are answered, so that a page of another site cannot
reach the service under a name of its own (DNS rebinding). With a token every request needs it,
except health checks and the page itself, which holds nothing secret. A request that a browser sends
from a page of another origin is refused in any case.
"""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftscore.service.problems import problem
from driftscore.service.settings import is_loopback

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; worker-src 'self'; font-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
PUBLIC_PATHS = ("/", "/livez", "/readyz")
PUBLIC_FOLDER = "/static/"
"""Paths that need no token: health checks, and the files of the page."""


class SecurityHeaders:
    """Middleware that adds the security headers to every answer; API answers are not cached."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add headers to the answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)


class Guard:
    """Middleware that answers only those who may use the service."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        refusal = None
        if scope["type"] == "http":
            refusal = self.refusal(str(scope["path"]), Headers(scope=scope))
        await (refusal or self.app)(scope, receive, send)

    def refusal(self, path: str, headers: Headers) -> ASGIApp | None:
        """Return the answer to a request that is refused, or None for one that may pass."""
        host = headers.get("host", "")
        name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
        if self.token is None and not is_loopback(name):
            return problem(
                400,
                "Without a token the service answers only to localhost; start it with --token-file "
                "to use it under another name",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return problem(403, "A page of another origin may not use the service")
        if self.token is None or path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDER):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(
            token.strip().encode(), self.token.encode()
        ):
            return None
        return problem(
            401,
            "This service needs a token: send the header Authorization: Bearer TOKEN",
            {"WWW-Authenticate": "Bearer"},
        )
