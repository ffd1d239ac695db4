"""A bucket "models" with one folder's files under current/, as far as boto3 and Run:ai's streamer ask: listings, sizes, ranges."""
import contextlib
import http.server
import pathlib
import re
import threading
import urllib.parse
from xml.sax.saxutils import escape


def environment(port):
    url = f"http://127.0.0.1:{port}"
    return {"AWS_ENDPOINT_URL": url, "RUNAI_STREAMER_S3_ENDPOINT": url, "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
            "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true"}


@contextlib.contextmanager
def serving(directory):
    """The port that it listens at."""
    root = pathlib.Path(directory)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            url = urllib.parse.urlparse(self.path)
            query = urllib.parse.parse_qs(url.query)
            if "list-type" in query or url.path.rstrip("/") == "/models":
                return self.answer(200, self.listing(query.get("prefix", [""])[0]), {"Content-Type": "application/xml"})
            file = root / url.path.rpartition("/")[2]
            if not url.path.startswith("/models/current/") or not file.is_file():
                return self.answer(404, b"", {})
            content = file.read_bytes()
            headers = {"ETag": '"1"', "Accept-Ranges": "bytes", "Last-Modified": "Wed, 25 Nov 2026 00:00:00 GMT"}
            if wanted := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
                first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
                headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                return self.answer(206, content[first:last + 1], headers)
            self.answer(200, content, headers)

        def listing(self, prefix):
            entries = "".join(f"<Contents><Key>current/{escape(file.name)}</Key><LastModified>2026-11-25T00:00:00.000Z</LastModified>"
                              f"<ETag>&quot;1&quot;</ETag><Size>{file.stat().st_size}</Size></Contents>"
                              for file in sorted(root.iterdir()) if f"current/{file.name}".startswith(prefix))
            return (f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                    f"<Name>models</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
                    f"{entries}</ListBucketResult>").encode()

        def answer(self, status, body, headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
