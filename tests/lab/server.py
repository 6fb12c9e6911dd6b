"""A server for the tests of downloads that misbehaves on request."""

import http.server
import threading


class Server:
    """What a test serves and what it saw: files by path, bytes after which the line breaks."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | int] = {}
        self.breaks: dict[str, list[int]] = {}
        self.seen: list[tuple[str, str | None]] = []
        self.ranges = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.seen.append((request.path, wanted))
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        if isinstance(content, int):
            request.send_error(content)
            return
        start = int(wanted[len("bytes=") : -1]) if wanted and self.ranges else 0
        if start >= len(content) > 0:
            request.send_error(416)
            return
        request.send_response(206 if wanted and self.ranges else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        allowed = self.breaks.get(request.path, [])
        stop = start + allowed.pop(0) if allowed else len(content)
        request.wfile.write(content[start:stop])
        if stop < len(content):
            request.close_connection = True
            request.connection.shutdown(2)
