# SPDX-License-Identifier: Apache-2.0
"""page_looks.py URL JOB [CHECK ...]: opens the status page in a real browser, on a desktop and on a phone, in the light
and in the dark, and says what is wrong with it. Exits with 1 where something is.
"""
import os
import sys

sys.dont_write_bytecode = True  # beside browser.py, in the sources
from browser import PATIENCE, Browser  # noqa: E402

SECTION = "[...document.querySelectorAll('section.job')].find((s) => s.querySelector('.name').textContent === {job})"
# Contrast of all text with what lies behind it, as WCAG has it: the pairs that are below 4.5.
FAINT = """(() => {
  const parse = (c) => { const m = c.match(/[0-9.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m; };
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; }
    return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), text = parse(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(text), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push(`${e.textContent.trim().slice(0, 40)}: ${((a + .05) / (b + .05)).toFixed(2)}`);
  }
  return found;
})()"""


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def look(page, job, wrong):
    section = SECTION.format(job=quoted(job))
    if not page.wait(f"!!({section})"):
        wrong.append(f"job {job} is not shown: {page.evaluate('document.body.innerText')}")
        return
    fact = f"[...({section}).querySelectorAll('dt')].find((d) => d.textContent === 'Loss').nextSibling.textContent"
    if not page.wait(f"parseFloat({fact}) > 0"):
        wrong.append(f"its loss is {page.evaluate(fact)}")
    names = f"[...({section}).querySelectorAll('dt')].map((d) => d.textContent)"
    few = f"{names}.length < 16 && new Set({names}).size === {names}.length"
    if not page.wait(f"{names}.some((n) => /metrics/.test(n))") or not page.evaluate(few):
        wrong.append(f"its facts are {page.evaluate(names)}")
    curves = f"[...({section}).querySelectorAll('figure:not([hidden]) path')]"
    if not page.wait(f"{curves}.length >= 2 && {curves}.every((p) => /L/.test(p.getAttribute('d')))"):
        wrong.append(f"its plots are {page.evaluate(f'{curves}.map((p) => p.outerHTML)')}")
    for key in "state", "worst", "risk", "command":
        if not page.evaluate(f"document.getElementById('{key}').textContent.length > 5"):
            wrong.append(f"#{key} says nothing")


def look_for_all(page, width, wrong):
    wide = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    if max(wide) > width:
        wrong.append(f"it is {wide} wide")
    cut = page.evaluate("[...document.querySelectorAll('section *')].filter((e) => "
                        f"e.getBoundingClientRect().right > {width}).map((e) => e.outerHTML.slice(0, 200))")
    faint = page.evaluate(FAINT)
    wrong += [f"beyond the edge: {e}" for e in cut[:5]] + [f"hardly to be read: {e}" for e in faint]
    wrong += [f"the console says {c}" for c in page.complaints()]


# What is wrong already is not waited for as long once more.
def look_for_checks(page, checks, wrong):
    for check in checks:
        if not page.wait(check, 1 if wrong else PATIENCE):
            wrong.append(f"not so: {check}")


def main():
    url, job, *checks = sys.argv[1:]
    with Browser() as browser:
        for width, dark in (1280, False), (390, True), (390, False), (1280, True):
            wrong = []
            page = browser.open(url, width=width, dark=dark)
            look(page, job, wrong)
            look_for_all(page, width, wrong)
            look_for_checks(page, checks, wrong)
            if page.hosts() - {url.split("/")[2]}:
                wrong.append(f"it asks others: {page.hosts()}")
            for w in wrong:
                print(f"{width} px, {'dark' if dark else 'light'}: {w}")
            failed = bool(wrong)
            if os.environ.get("PICTURES"):
                page.screenshot(f"{os.environ['PICTURES']}/{width}-{'dark' if dark else 'light'}.png")
            if failed:
                break
    sys.exit(failed)


if __name__ == "__main__":
    main()
