// SPDX-License-Identifier: Apache-2.0
//
// The status page: asks /status.json every two seconds and shows it. Its plots begin with what psd has kept
// (/history.json). Every text that comes from psd, and so from clients, becomes textContent, never HTML.
'use strict';

const EVERY_MS = 2000, PATIENCE_MS = 5000, SPAN_MS = 30 * 60 * 1000;
const by = (id) => document.getElementById(id);
const jobs = new Map();  // by name: {run, root, points, plots}
const memory = {points: [], plot: null};
let answered = Date.now();

// ---- text ----

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function create(name, parent, className) {
  const element = document.createElement(name);
  if (className) element.className = className;
  parent.append(element);
  return element;
}

const known = (x) => x !== undefined && x !== null;

// Numbers that JSON does not have come as "NaN", "Infinity", "-Infinity".
function number(x) {
  if (!known(x)) return '–';
  if (typeof x === 'string' || !Number.isFinite(x)) return String(x);
  if (Math.abs(x) >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString('en');
  return Number(x.toPrecision(3)).toString();
}

function bytes(x) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (x >= 1024 && i < units.length - 1) [x, i] = [x / 1024, i + 1];
  return `${i && x < 999.5 ? x.toPrecision(3) : Math.round(x)} ${units[i]}`;
}

function time(ms) {
  if (ms < 60e3) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3600e3) return `${Math.round(ms / 60e3)} min`;
  if (ms < 48 * 3600e3) return `${(ms / 3600e3).toFixed(1)} h`;
  return `${Math.round(ms / 86400e3)} days`;
}

const plural = (n, what) => `${number(n)} ${what}${n === 1 ? '' : 's'}`;

// ---- plots ----

const WIDTH = 300, HEIGHT = 96, LEFT = 46, TOP = 8, BOTTOM = 80;

function draw(name, parent, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  parent.append(element);
  return element;
}

function makePlot(parent, title, key, show, fromZero) {
  const figure = create('figure', parent);
  const caption = create('figcaption', figure);
  const svg = draw('svg', figure, {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img'});
  for (const y of [TOP, BOTTOM]) draw('line', svg, {class: 'grid', x1: LEFT, x2: WIDTH, y1: y, y2: y});
  const label = (x, y, anchor) => draw('text', svg, {x, y, 'text-anchor': anchor});
  return {title, key, show, fromZero, figure, caption, svg, curve: draw('path', svg, {class: 'curve'}),
    most: label(LEFT - 4, TOP + 4, 'end'), least: label(LEFT - 4, BOTTOM + 3, 'end'),
    begin: label(LEFT, BOTTOM + 13, 'start'), end: label(WIDTH, BOTTOM + 13, 'end')};
}

// From the least to the most; a constant has some room around it.
function range(values, fromZero) {
  let least = Math.min(...values), most = Math.max(...values);
  if (fromZero) least = Math.min(0, least);
  if (most === least) [least, most] = fromZero ? [least, most + 1] : [least - Math.abs(least) / 10 - .01, most + Math.abs(most) / 10 + .01];
  return [least, most];
}

// A value that is not finite breaks the line.
function curve(points, key, x, y) {
  let d = '', pen = 'M';
  for (const p of points) {
    if (Number.isFinite(p[key])) d += `${pen}${x(p.t).toFixed(1)} ${y(p[key]).toFixed(1)}`;
    pen = Number.isFinite(p[key]) ? 'L' : 'M';
  }
  return d;
}

function showPlot(plot, points) {
  const values = points.map((p) => p[plot.key]).filter(Number.isFinite);
  plot.figure.hidden = values.length === 0;
  if (plot.figure.hidden) return;
  const [least, most] = range(values, plot.fromZero);
  const first = points[0].t, last = points[points.length - 1].t, span = Math.max(last - first, 1);
  const x = (t) => LEFT + (WIDTH - LEFT - 2) * (t - first) / span;
  const y = (v) => BOTTOM - (BOTTOM - TOP) * (v - least) / (most - least);
  plot.curve.setAttribute('d', curve(points, plot.key, x, y));
  say(plot.caption, `${plot.title}: ${plot.show(points[points.length - 1][plot.key])}`);
  say(plot.most, plot.show(most));
  say(plot.least, plot.show(least));
  say(plot.begin, `${time(span)} ago`);
  say(plot.end, 'now');
  plot.svg.setAttribute('aria-label', `${plot.title}, from ${plot.show(Math.min(...values))} to ` +
    `${plot.show(Math.max(...values))} in the last ${time(span)}`);
}

function addPoint(points, point) {
  if (points.length && points[points.length - 1].t >= point.t) return;
  points.push(point);
  while (points[0].t < point.t - SPAN_MS) points.shift();
}

// ---- a job ----

function makeJob(job) {
  const root = by('job').content.cloneNode(true).firstElementChild;
  const find = (selector) => root.querySelector(selector);
  by('jobs').append(root);
  const plots = [
    makePlot(find('.plots'), 'Examples/s', 'speed', number, true),
    makePlot(find('.plots'), 'Loss', 'loss', number, false),
    makePlot(find('.plots'), 'Staleness met, at most', 'staleness', number, true),
  ];
  return {run: job.run, root, find, points: [], plots, facts: new Map()};
}

function jobOf(job) {
  let shown = jobs.get(job.name);
  if (!shown) jobs.set(job.name, shown = makeJob(job));
  if (shown.run !== job.run) {
    shown.find('.facts').replaceChildren();
    Object.assign(shown, {run: job.run, points: [], facts: new Map(), bar: undefined});
  }
  return shown;
}

// facts: the elements that show them, by name. A new one stands behind the pair `after`, else at the end.
function fact(list, facts, name, text, after) {
  if (!facts.has(name)) {
    const pair = create('div', list);
    if (after) after.after(pair);
    create('dt', pair).textContent = name;
    facts.set(name, create('dd', pair));
  }
  say(facts.get(name), text);
  return facts.get(name);
}

function showProgress(shown, job, put) {
  const share = job.examples ? job.examples_done / job.examples : 0;
  const text = job.examples ? `${Math.floor(100 * share)} % of ${number(job.examples)}` : '–';
  const epoch = job.epochs ? `${number(job.epoch + 1)} of ${number(job.epochs)}` : number(job.epoch + 1);
  put('Epoch', known(job.epoch) ? epoch : '–');
  const dd = put('Of this epoch', text);
  if (!shown.bar) shown.bar = create('progress', dd.parentNode);
  shown.bar.setAttribute('aria-label', 'trained of this epoch');
  shown.bar.hidden = !job.examples;
  shown.bar.value = share;
}

function staleness(job) {
  if (!job.mode) return '–';
  if (job.mode === 'sync') return `none; ${number(job.stale)} late`;
  return job.mode === 'ssp' ? plural(job.staleness, 'step') : plural(job.staleness, 'update');
}

function checkpoint(job) {
  if (!job.checkpoint_step) return job.checkpoints ? 'none yet' : 'none: it writes none';
  return `step ${number(job.checkpoint_step)}, ${time(job.checkpoint_age_ms)} ago`;
}

function workersOf(job) {
  const n = job.workers_in_state;
  if (!n) return 'known to ps task 0';
  const parts = ['live', 'dead', 'expected', 'left'].filter((state) => n[state]).map((state) => `${n[state]} ${state}`);
  return parts.join(', ') || 'none';
}

function showFacts(shown, job) {
  const names = new Set();
  let last;
  const put = (name, text) => {
    const dd = fact(shown.find('.facts'), shown.facts, name, text, last);
    names.add(name), last = dd.parentNode;
    return dd;
  };
  put('Mode', job.mode || 'not declared');
  put('Workers', workersOf(job));
  put('Step', number(job.steps));
  if (job.mode === 'sync') put('Round', number(job.round));
  showProgress(shown, job, put);
  if (known(job.epochs)) put('Time left', job.time_left_ms ? `about ${time(job.time_left_ms)}` : '–');
  if (known(job.age_ms)) put('Age', time(job.age_ms));
  if (known(job.checkpoints)) put('Newest checkpoint', checkpoint(job));
  put('Examples/s', number(job.examples_per_second));
  put('Loss', number(job.loss));
  put('Staleness met', staleness(job));
  put('Variables here', `${bytes(job.bytes)} in ${plural(job.partitions, 'part')}`);
  put('Traffic', `${bytes(Math.round(job.bytes_per_second))}/s`);
  if (job.user) put('User', job.user);
  const metrics = Object.entries(job.metrics || {}).map(([name, value]) => `${name} ${number(value)}`);
  if (metrics.length) put('The last epoch\'s metrics', metrics.join(', ')).parentNode.className = 'whole';
  if (job.nonfinite) put('Not finite', plural(job.nonfinite, 'push').replace('pushs', 'pushes'));
  for (const [name, dd] of shown.facts) if (!names.has(name)) dd.parentNode.remove(), shown.facts.delete(name);
}

const MOST_WAITS = 32; // of a job that psd names

// Those who wait for the same have one line, with the longest wait: psd names that first.
function waitsOf(job) {
  const groups = new Map();
  for (const w of job.waits) {
    const what = `${w.what || w.method}${w.whom ? `, of ${w.whom}` : ''}`;
    if (!groups.has(what)) groups.set(what, {since: w.since_ms, who: []});
    groups.get(what).who.push(known(w.worker) ? w.worker : -1);
  }
  const names = (who) => who.sort((a, b) => a - b).map((rank) => rank < 0 ? 'a client' : `worker ${rank}`).join(', ');
  const texts = [...groups].map(([what, {since, who}]) => who.length === 1 ? `${names(who)} waits ${time(since)} for ${what}`
    : `${names(who)} wait up to ${time(since)} for ${what}`);
  const more = job.waiting - job.waits.length;
  if (job.waits.length >= MOST_WAITS && more > 0) texts.push(`${plural(more, 'more call')}: psctl waits lists them all.`);
  return texts;
}

function showWaits(shown, job) {
  const list = shown.find('.waits'), texts = waitsOf(job);
  shown.find('.waiting').hidden = !texts.length && job.state !== 'running';
  if (!texts.length) texts.push(job.waiting ? `${plural(job.waiting, 'call')} for a moment` : 'Nobody waits.');
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach((text, i) => say(list.children[i] || create('li', list), text));
}

// ---- workers ----

const COLUMNS = ['Worker', 'State', 'Step', 'Examples/s', 'Loss', 'Silent', 'Process'];

function stateOf(w) {
  const notes = [w.excluded ? 'rounds go on without it' : '', w.draining ? 'asked to leave' : '', w.reason].filter(Boolean);
  return `${w.state === 'dead' ? '✕ ' : ''}${w.state}${notes.length ? `: ${notes.join('; ')}` : ''}`;
}

function cellsOf(w) {
  return [number(w.rank), stateOf(w), number(w.step), number(w.examples_per_second), number(w.loss),
    known(w.silent_ms) ? time(w.silent_ms) : '–', w.process || '–'];
}

function makeRow(body) {
  const row = create('tr', body);
  for (const name of COLUMNS) {
    const cell = create('td', row, name === 'Process' ? 'wide' : '');
    cell.dataset.name = name;
  }
  return row;
}

function showWorkers(shown, job) {
  const workers = job.workers || [], body = shown.find('tbody');
  shown.find('.crew').hidden = workers.length === 0;
  while (body.children.length > workers.length) body.lastChild.remove();
  workers.forEach((w, i) => {
    const row = body.children[i] || makeRow(body);
    row.className = w.state;
    cellsOf(w).forEach((text, k) => say(row.children[k], text));
  });
  const all = job.workers_in_state ? Object.values(job.workers_in_state).reduce((a, b) => a + b) : 0;
  shown.find('.more').hidden = all <= workers.length;
  say(shown.find('.more'), `${plural(all - workers.length, 'more worker')}: psctl workers lists them all.`);
}

function showJob(job, now) {
  const shown = jobOf(job);
  say(shown.find('.name'), job.name);
  say(shown.find('.chip'), job.state);
  shown.find('.chip').className = `chip ${job.state}`;
  shown.find('.reason').hidden = !job.reason;
  say(shown.find('.reason'), job.reason);
  showFacts(shown, job);
  if (job.state === 'running') addPoint(shown.points, {t: now, speed: job.examples_per_second, loss: job.loss, staleness: job.staleness});
  shown.plots.forEach((plot) => showPlot(plot, plot.key === 'staleness' && job.mode === 'sync' ? [] : shown.points));
  shown.find('.plots').hidden = shown.plots.every((plot) => plot.figure.hidden);
  showWorkers(shown, job);
  showWaits(shown, job);
}

// ---- the page ----

function showSummary(status) {
  const s = status.summary;
  by('summary').className = s.level;
  for (const key of ['state', 'worst', 'risk', 'command']) say(by(key), s[key]);
  const mark = {ok: '', warning: '! ', bad: '✕ '}[s.level] || '';
  document.title = `${mark}paramserver ps:${status.task}`;
}

const taskFacts = new Map();

function queueText(q, now) {
  const waits = q.queued ? `, ${plural(q.queued, 'job')} waiting, for ${time(now - q.oldest_ms)} at most` : '';
  return (q.running ? 'a job runs' : 'no job runs') + waits;
}

function showTask(status) {
  const m = status.memory, put = (name, text) => fact(by('task'), taskFacts, name, text);
  say(by('where'), `ps task ${status.task} of ${status.tasks}, version ${status.version}, up for ${time(status.uptime_ms)}`);
  put('Tensors', `${bytes(m.block_bytes)} of ${bytes(m.limit_bytes)}`);
  put('Process', `${bytes(m.resident_bytes)} resident`);
  put('Held by readers', bytes(m.pinned_bytes));
  put('Requests in flight', bytes(m.queued_bytes));
  if (status.queue) put('Queue', queueText(status.queue, status.clock_ms));
  put('Takes jobs', status.draining ? 'no: it is being drained' : 'yes');
  if (status.tasks > 1) put('Other ps tasks', 'have pages of their own');
  addPoint(memory.points, {t: status.clock_ms, resident: m.resident_bytes, blocks: m.block_bytes});
  if (!memory.plots) memory.plots = [makePlot(by('task-plots'), 'Memory, tensors', 'blocks', bytes, true),
    makePlot(by('task-plots'), 'Memory, resident', 'resident', bytes, true)];
  memory.plots.forEach((plot) => showPlot(plot, memory.points));
}

function show(status) {
  const names = new Set(status.jobs.map((job) => job.name));
  showSummary(status);
  status.jobs.forEach((job) => showJob(job, status.clock_ms));
  for (const [name, shown] of jobs) if (!names.has(name)) shown.root.remove(), jobs.delete(name);
  showTask(status);
}

function showSilence() {
  const ms = Date.now() - answered;
  by('silence').hidden = ms < 2 * EVERY_MS + 1000;
  if (!by('silence').hidden) say(by('silence'), `No answer for ${time(ms)}: this ps task has ended or cannot be reached. What follows is old.`);
}

async function ask(path) {
  const reply = await fetch(path, {signal: AbortSignal.timeout(PATIENCE_MS)});
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

async function look() {
  try {
    show(await ask('/status.json'));
    answered = Date.now();
  } catch (e) {
    by('silence').dataset.why = String(e);
  }
  showSilence();
  setTimeout(look, EVERY_MS);
}

// What psd has kept from before this page was opened.
async function begin() {
  try {
    const history = await ask('/history.json');
    for (const [t, resident, blocks] of history.memory) addPoint(memory.points, {t, resident, blocks});
    for (const job of history.jobs)
      for (const [t, speed, loss, stale] of job.points) addPoint(jobOf(job).points, {t, speed, loss, staleness: stale});
  } catch (e) {
    by('silence').dataset.why = String(e);
  }
  look();
}

begin();
