#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of the status page in README.md: of a training that goes on, on a desktop, and after the death of a worker
on a phone. Needs Chromium, and nothing but Python.

    doc/page.py BUILD FOLDER      writes FOLDER/page-desktop.png and FOLDER/page-phone.png
"""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/it"))
from browser import Browser  # noqa: E402
from training import Training  # noqa: E402

LEARNS, ENDURES = 90, 8  # seconds: until there is a curve, and until a death is certain


def main():
    build, folder = sys.argv[1:]
    with Training(build, "mnist-cnn/ssp.yaml", "delay_ms=250", "optimizer={name: sgd, learning_rate: 0.01}") as training, \
            Browser() as browser:
        training.wait_for_steps(3)
        desktop = browser.open(training.url, width=1100, height=824)
        time.sleep(LEARNS)
        desktop.wait("document.querySelector('.waits').textContent.includes('worker')")
        desktop.screenshot(f"{folder}/page-desktop.png", whole=False)
        training.workers[2].kill()
        time.sleep(ENDURES)
        phone = browser.open(training.url, width=390, height=844, scale=1.5, dark=True)
        phone.wait("document.querySelectorAll('tr.dead').length === 1")
        phone.screenshot(f"{folder}/page-phone.png", whole=False)


if __name__ == "__main__":
    main()
