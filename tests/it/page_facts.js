// SPDX-License-Identifier: Apache-2.0
//
// node page_facts.js PAGE_JS: what the status page says of a job, without a browser: the first of its facts and their
// number, a line for each of some modes in a row; then amounts of memory, and who waits.
'use strict';
const fs = require('fs'), vm = require('vm');

class Element {
  constructor() { Object.assign(this, {children: [], parentNode: null, textContent: '', dataset: {}}); }
  get lastElementChild() { return this.children[this.children.length - 1]; }
  append(e) { e.remove(); e.parentNode = this; this.children.push(e); }
  after(e) {
    e.remove();
    e.parentNode = this.parentNode;
    e.parentNode.children.splice(e.parentNode.children.indexOf(this) + 1, 0, e);
  }
  remove() { if (this.parentNode) this.parentNode.children = this.parentNode.children.filter((e) => e !== this); }
  setAttribute() {}
}

const page = vm.createContext({
  document: {getElementById: () => new Element(), createElement: () => new Element()},
  fetch: () => new Promise(() => {}), AbortSignal: {timeout() {}},
});
vm.runInContext(fs.readFileSync(process.argv[2], 'utf8'), page);

const list = new Element(), shown = {facts: new Map(), find: () => list};
const job = {epoch: 0, steps: 70, round: 8, examples: 0, bytes: 0, partitions: 1, bytes_per_second: 0, loss: 1,
  staleness: 0, stale: 0};
for (const changed of [{mode: 'async'}, {mode: 'sync', nonfinite: 1}, {mode: 'async', steps: 71}]) {
  page.showFacts(shown, {...job, ...changed});
  console.log(list.children.map(({children: [dt, dd]}) => `${dt.textContent} ${dd.textContent}`).slice(0, 5).join(', '),
    `of ${list.children.length}`);
}

console.log([1023, 2 ** 20, 999.7 * 2 ** 20, 1010 * 2 ** 20, 2000 * 2 ** 40].map((x) => page.bytes(x)).join(', '));
const wait = (worker) => ({worker, what: 'x', since_ms: 5000}), all = [...Array(32).keys()].map((i) => wait(41 - i));
console.log(page.waitsOf({waiting: 4, waits: [wait(10), wait(2), wait()]}).join(' '));
console.log(page.waitsOf({waiting: 199, waits: all}).map((text) => text.slice(0, 43)).join(' '));
