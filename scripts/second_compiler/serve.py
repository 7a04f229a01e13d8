"""Serves the page beside this file and a folder of shaders to a headless Chromium, and prints what the page reports.

The page compiles each `HASH.wgsl` and runs each `HASH.json`. Only 127.0.0.1 is listened on, for which Chromium has WebGPU. The browser gets a profile in a
temporary folder, and is ended after the report. For SECONDS it makes pipelines, and runs what these suffice for.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu-sandbox", "--no-first-run", "--disable-background-networking",
    "--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-webgpu-adapter=swiftshader", "--use-vulkan=swiftshader",
]
# For the browser's start, all parsing and all runs.
BEYOND = 900


def handler(folder, report, done):
    page = pathlib.Path(__file__).with_name("page.html")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/").partition("?")[0]
            if name == "":
                return self.answer("text/html; charset=utf-8", page.read_bytes())
            if name == "list":
                names = sorted(file.name for file in folder.iterdir() if file.suffix in (".wgsl", ".json"))
                return self.answer("application/json", json.dumps(names).encode())
            if "/" in name or not (folder / name).is_file():
                return self.send_error(404)
            return self.answer("text/plain; charset=utf-8", (folder / name).read_bytes())

        def do_POST(self):
            report.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.answer("text/plain", b"")
            done.set()

        def answer(self, kind, body):
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def main():
    folder, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    report, done = {}, threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(folder, report, done))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        address = f"http://127.0.0.1:{server.server_port}/?seconds={seconds}"
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended = done.wait(seconds + BEYOND)
        browser.terminate()
        browser.wait(30)
    if not ended:
        sys.exit(f"second-compiler: Chromium did not report within {seconds + BEYOND} seconds")
    if "error" in report:
        sys.exit(f"second-compiler: {report['error']}")
    for line in report["refused"] + report["different"]:
        print(line)
    print(f"{report['adapter']}: {report['shaders']} shaders, {len(report['refused'])} refused; {report['pipelines']} pipelines made")
    print(f"{report['adapter']}: {report['runs']} of {report['nodes']} runs, {len(report['different'])} differ")
    sys.exit(1 if report["refused"] or report["different"] or not report["shaders"] else 0)


main()
