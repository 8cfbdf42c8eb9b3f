# SPDX-License-Identifier: Apache-2.0
"""A Chromium without a window, driven over a pair of pipes by the DevTools protocol: no package is needed.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:9170/", width=390)
        page.evaluate("document.title")
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds, for an answer


def find():
    """The program; None: there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ps-browser.", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.come, to_write = os.pipe()
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}', find(), "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-lcd-text", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            pass_fds=[to_read, to_write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.rest, self.number, self.events = b"", 0, []
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.come)
        self.folder.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.come, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        os.write(self.to, json.dumps({**message, **({"sessionId": session} if session else {})}).encode() + b"\0")
        while True:
            reply = self.receive()
            if reply.get("id") != self.number:
                self.events.append(reply)
            elif "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']}")
            else:
                return reply["result"]

    def open(self, url, width=1280, height=900, scale=1, dark=False):
        return Page(self, url, width, height, scale, dark)


class Page:
    def __init__(self, browser, url, width, height, scale, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, expression):
        """The value of JavaScript."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait(self, expression, patience=PATIENCE):
        """Until it is true; says whether it came to be."""
        end = time.monotonic() + patience
        while not self.evaluate(expression):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def complaints(self):
        """What the console says of errors, warnings and refused sources."""
        self.evaluate("1")  # what came before has been received
        said = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                said.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                said.append(event["params"]["entry"])
            elif event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                said.append(event["params"]["args"])
        return said

    def hosts(self):
        """Of all that the page has asked for."""
        return {event["params"]["request"]["url"].split("/")[2] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"}

    def screenshot(self, path, whole=True):
        """Of the whole page, or of what is in the window."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        with open(path, "wb") as f:
            f.write(base64.b64decode(picture["data"]))
