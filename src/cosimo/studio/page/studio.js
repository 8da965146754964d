// The page: what the controls say goes to the server as a state, what comes back is shown. No figure is computed here.
import { plot, rail, repaint } from "./plot.js";

const $ = (id) => document.getElementById(id);
const MARKS = { good: "✓", care: "!", bad: "✗", open: "?" };
const TRAIL = 24;
const COLOURS = ["accent", "care", "good", "bad", "muted"];

const view = {
  state: null, description: null, key: 0, frames: new Map(), courses: new Map(), texts: new Map(), gaps: new Map(), curve: null, verdict: null, verdictStep: null,
  outputs: [], trail: [], front: [], wires: [], shares: {}, chosen: null, span: null, runs: [], samples: new Map(), watched: [], hidden: new Set(), socket: null, judging: false,
};
const frozen = await unpack($("frozen")?.textContent);

// A page without a server has all that it can show inside it, compressed.
async function unpack(packed) {
  if (!packed) return null;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
}

// ---- state ------------------------------------------------------------------------------------------------------------

// What says the same already is left alone: the browser lays out anew whatever is written.
const say = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };
const seconds = (value) => {
  const [size, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e-3, "ms"] : value >= 1e-6 ? [1e-6, "µs"] : [1e-9, "ns"];
  return `${Number((value / size).toPrecision(4))} ${unit}`;
};
// The setting as text: a frame has it inside.
const saying = (step) => (view.frames.get(step)?.command ? view.frames.get(step) : view.texts.get(step));
const here = () => view.state.step ?? view.description?.step ?? null;

function change(changes, { keep = false } = {}) {
  view.state = { ...view.state, ...changes };
  for (const name of Object.keys(view.state)) if (view.state[name] === null || view.state[name] === undefined) delete view.state[name];
  if (!keep) forget();
  $("trouble").hidden = true;
  $("applied").textContent = "";
  clearTimeout(view.linking);  // browsers limit how often an address may change
  view.linking = setTimeout(() => history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(view.state))}`), 150);
  look();
  paint();
}

function forget() {
  view.key += 1;
  for (const kept of [view.frames, view.courses, view.texts, view.gaps]) kept.clear();
  view.trail = []; view.front = []; view.wires = []; view.shares = {};
  view.curve = view.verdict = null;
}

function look() {
  Object.assign(document.documentElement.dataset, { shown: "", full: "" });  // until it is painted
  if (frozen) { replay(); return; }
  send({ kind: "look", key: view.key, state: view.state, outputs: view.outputs });
}

function send(message) {
  if (view.socket?.readyState === WebSocket.OPEN) view.socket.send(JSON.stringify(message));
}

// What the server would send of this master, computed before for all positions of the slider.
function replay() {
  const same = (entry) => JSON.stringify(entry.master) === JSON.stringify(view.state.master ?? frozen.entries[0].master);
  const entry = frozen.entries.find(same) ?? frozen.entries[0];
  if (view.replayed === entry && view.frames.size) return;
  view.replayed = entry;
  RECEIVE.description({ ...frozen.description, master: entry.master });
  for (const message of [...frozen.common, ...entry.messages]) RECEIVE[message.kind](message);
}

function master(changes) {
  if (frozen) {
    const wanted = frozen.entries.filter((entry) => entry.master.name === $("master").value);
    change({ master: (wanted.find((entry) => entry.coupling === $("coupling-all").value) ?? wanted[0]).master });
    return;
  }
  const now = view.state.master ?? view.description.master, next = { ...now, ...changes };
  if (changes.name && changes.name !== now.name) for (const name of Object.keys(next)) if (!["name", "couplings"].includes(name)) delete next[name];
  change({ master: next });
}

// ---- messages ---------------------------------------------------------------------------------------------------------

const RECEIVE = {
  hello(message) {
    const linked = fromLink();
    view.state = linked ?? message.state;
    if (message.proposals) propose(message.proposals);
    look();
  },
  description(message) {
    const first = view.description === null || view.description.name !== message.name;
    view.description = message;
    if (first && !view.outputs.length) { view.outputs = message.outputs.slice(0, 2); look(); }
    build();
  },
  frame({ frame, course }) { view.frames.set(frame.step, frame); if (course) view.courses.set(course.step, course.outputs); },
  gap({ step, text }) { view.gaps.set(step, text); },
  curve(message) { view.curve = message; },
  course(message) { view.courses.set(message.step, message.outputs); },
  text(message) { view.texts.set(message.step, message); },
  front({ points }) { view.front.push(...points); },
  wires({ wires, step }) { view.wires = wires; view.wiresStep = step ?? view.description.step; },
  judging() { view.judging = true; },
  verdict({ verdict, step, shares }) {
    view.judging = false; view.shares = shares ?? {}; view.verdictStep = step ?? view.description.step;
    if (verdict.error && verdict.exit_code) { trouble(verdict.error); view.verdict = null; } else view.verdict = verdict;
  },
  filled() { document.documentElement.dataset.filled = String(view.key); },
  error({ text }) { trouble(text); },
  taken({ state }) { view.state = {}; change(state); },
  applied({ file, kept }) { $("applied").textContent = `${file} is written; the previous file is ${kept}.`; },
  changed() { forget(); look(); },
  connected({ source, target, sign, file, kept }) {
    const said = `${source} → ${target}${sign ? " with gain −1" : ""} is written to ${file}; the previous file is ${kept}.`;
    for (const row of sign ? $("proposals").children : []) if (row.textContent.startsWith(`${source} → ${target}:`)) row.textContent = said;
    $("applied").textContent = said;
  },
  frozen({ file }) { $("applied").textContent = `${file} is written; it works without a server.`; },
  opened({ state, proposals }) {
    Object.assign(view, { state: {}, description: null, outputs: [], runs: view.runs });
    $("outputs").replaceChildren();
    propose(proposals);
    change(state);
  },
  runs({ runs }) { view.runs = runs; showRuns(); },
};

function receive(event) {
  if (event.data instanceof ArrayBuffer) { samples(event.data); return; }
  const message = JSON.parse(event.data);
  if (message.key !== undefined && message.key !== view.key) return;
  RECEIVE[message.kind]?.(message);
  paint();
}

function fromLink() {
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return typeof found?.system === "string" ? found : null;
  } catch { return null; }
}

// ---- FMUs dropped onto the page ---------------------------------------------------------------------------------------

const press = (text, onclick, title = "") => Object.assign(document.createElement("button"), { type: "button", textContent: text, onclick, title });

function propose({ connections, undecided }) {
  const item = (text) => Object.assign(document.createElement("li"), { textContent: text });
  $("proposals").replaceChildren(...connections.map((one) => {
    const row = item(`${one.source} → ${one.target}: ${one.reason}${one.check_sign ? "; check its sign: action and reaction have opposite signs " : ""}`);
    if (one.check_sign) row.append(press("Change its sign", () => send({ kind: "connect", state: view.state, source: one.source, target: one.target, sign: true })));
    return row;
  }));
}

// Inputs that nothing feeds: why, and a button for every output that may feed them.
function openInputs(open) {
  $("open").replaceChildren(...open.map((one) => {
    const item = Object.assign(document.createElement("li"), { textContent: `open: ${one.target}: ${one.reason} ` });
    for (const other of frozen ? [] : one.candidates) {
      const button = press(`Connect ${other.source}`, () => send({ kind: "connect", state: view.state, source: other.source, target: one.target }), other.reason);
      item.append(button, ` ${other.reason || "the types fit"}${other.check_sign ? "; check its sign" : ""} `);
    }
    return item;
  }));
}

async function couple(files) {
  const fmus = [...files].filter((file) => file.name.toLowerCase().endsWith(".fmu"));
  if (!fmus.length) { trouble("Drop files that end in .fmu."); return; }
  for (const file of fmus) {
    $("link-state").textContent = `copying ${file.name}`;
    const answer = await fetch(`fmus/${encodeURIComponent(file.name)}`, { method: "PUT", body: file });
    $("link-state").textContent = "";
    if (!answer.ok) { trouble(await answer.text()); return; }
  }
  send({ kind: "couple", files: fmus.map((file) => file.name) });
}

function trouble(text) { $("trouble").textContent = text; $("trouble").hidden = false; }

function connect() {
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}${location.pathname}live`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = receive;
  socket.onopen = () => { $("link-state").textContent = ""; view.key += 1; send({ kind: "watch", names: view.watched, span: view.span }); };
  socket.onclose = () => { $("link-state").textContent = "not connected"; setTimeout(connect, 1500); };
  view.socket = socket;
}

// ---- controls ---------------------------------------------------------------------------------------------------------

function options(select, values, chosen) {
  const all = values.includes(chosen) || !chosen ? values : [...values, chosen];
  select.replaceChildren(...all.map((value) => new Option(value, value, false, value === chosen)));
}

function fill(input, value) { if (document.activeElement !== input) input.value = value ?? ""; }

function build() {
  const about = view.description, said = view.state.master ?? about.master;
  document.title = `${about.name} – cosimo studio`;
  $("name").textContent = about.name;
  if (view.drawn !== about.graph) { view.drawn = about.graph; view.chosen = null; $("graph").innerHTML = about.graph || `<p class="muted">${about.units.length} units: too many to draw.</p>`; links(); }
  options($("master"), about.masters, said.name);
  const general = (said.couplings ?? []).filter((word) => !word.includes("=")).at(-1) ?? "hold0";
  options($("coupling-all"), about.couplings, general);
  fill($("target"), Number((100 * about.target).toPrecision(12)));
  fill($("stop"), about.stop);
  const ordered = about.ordered.includes(said.name) && about.units.length > 1 && about.units.length <= 40 && !/[;]/.test(said.order ?? "");
  $("order-box").hidden = !ordered;
  if (ordered) order((said.order ?? about.units.join(",")).split(","));
  single(said, general);
  openInputs(about.open ?? []);
  $("apply").disabled = !about.file;
  $("apply").title = about.file ? "" : "A built-in problem has no file";
  if (!$("outputs").childElementCount) chips();
}

function order(units) {
  const list = $("order");
  if (list.dataset.of === units.join(",")) return;
  list.dataset.of = units.join(",");
  const move = (from, to) => {
    const next = [...units];
    next.splice(to, 0, ...next.splice(from, 1));
    master({ order: next.join(",") });
  };
  list.replaceChildren(...units.map((unit, place) => {
    const item = Object.assign(document.createElement("li"), { textContent: unit, draggable: true, tabIndex: 0 });
    item.setAttribute("aria-label", `${unit}, place ${place + 1} of ${units.length}`);
    item.ondragstart = (event) => event.dataTransfer.setData("text/plain", String(place));
    item.ondragover = (event) => event.preventDefault();
    item.ondrop = (event) => { event.preventDefault(); move(Number(event.dataTransfer.getData("text/plain")), place); };
    item.onkeydown = (event) => {
      const to = place + { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (to >= 0 && to < units.length) { event.preventDefault(); move(place, to); $("order").children[to]?.focus(); }
    };
    return item;
  }));
}

function single(said, general) {
  const about = view.description, box = $("single"), now = JSON.stringify([about.inputs, said.couplings, about.parameters, view.state.settings]);
  if (box.dataset.of === now || box.contains(document.activeElement)) return;
  box.dataset.of = now;
  const own = new Map((said.couplings ?? []).filter((word) => word.includes("=")).map((word) => [word.slice(0, word.lastIndexOf("=")), word.slice(word.lastIndexOf("=") + 1)]));
  const rows = about.inputs.map((input) => {
    const label = document.createElement("label"), select = document.createElement("select");
    options(select, ["as all", ...about.couplings], own.get(input) ?? "as all");
    select.onchange = () => {
      if (select.value === "as all") own.delete(input); else own.set(input, select.value);
      couplings(general, own);
    };
    label.append(input, select);
    return label;
  });
  for (const [name, value] of Object.entries(about.parameters)) {
    const label = document.createElement("label"), input = document.createElement("input");
    input.inputMode = "decimal"; input.value = view.state.settings?.[name] ?? value; input.dataset.parameter = name;
    input.onchange = () => {
      const number = read(input);
      if (number !== null) change({ settings: { ...view.state.settings, [name]: number } });
    };
    label.append(name, input);
    rows.push(label);
  }
  box.replaceChildren(...rows);
}

function couplings(general, own) {
  master({ couplings: [...(general === "hold0" ? [] : [general]), ...[...own].map(([input, word]) => `${input}=${word}`)] });
}

function read(input) {
  const number = Number(input.value.trim().replace(",", "."));
  const wrong = !input.value.trim() || !Number.isFinite(number) || number <= 0;
  input.setAttribute("aria-invalid", String(wrong));
  if (wrong) { trouble(`'${input.value}' is not a positive number.`); return null; }
  return number;
}

function chips() {
  const about = view.description;
  $("outputs").replaceChildren(...about.outputs.slice(0, 60).map((name) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.setAttribute("aria-pressed", String(view.outputs.includes(name)));
    button.onclick = () => {
      view.outputs = view.outputs.includes(name) ? view.outputs.filter((other) => other !== name) : [...view.outputs, name].slice(-3);
      for (const other of $("outputs").children) other.setAttribute("aria-pressed", String(view.outputs.includes(other.textContent)));
      view.courses.clear();
      look(); paint();
    };
    return button;
  }));
}

function listen() {
  $("step").oninput = () => {
    if (view.description) change({ step: view.description.steps[Number($("step").value)] }, { keep: true });
  };
  $("step-exact").onchange = () => { const step = read($("step-exact")); if (step !== null) change({ step }, { keep: true }); };
  $("target").onchange = () => { const share = read($("target")); if (share !== null) change({ target: Number((share / 100).toPrecision(12)) }); };
  $("stop").onchange = () => { const stop = read($("stop")); if (stop !== null) change({ stop }); };
  $("master").onchange = () => master({ name: $("master").value });
  $("coupling-all").onchange = () => {
    const said = view.state.master ?? view.description.master;
    const own = new Map((said.couplings ?? []).filter((word) => word.includes("=")).map((word) => word.split(/=(?=[^=]*$)/)));
    couplings($("coupling-all").value, own);
  };
  $("take").onclick = () => send({ kind: "take", state: view.state, options: view.verdict.recommendation.options });
  $("apply").onclick = () => send({ kind: "apply", state: view.state });
  $("freeze").onclick = () => { $("applied").textContent = "Computing all positions of the slider …"; send({ kind: "freeze", state: view.state, outputs: view.outputs }); };
  $("run").onclick = () => send({ kind: "run", state: view.state });
  $("front").onclick = (event) => {
    const near = ($("front").drawn ?? []).filter(({ point }) => point.of).map(({ x, y, point }) => ({ far: Math.hypot(x - event.offsetX, y - event.offsetY), of: point.of })).sort((a, b) => a.far - b.far)[0];
    if (near && near.far < 14 && frozen === null) send({ kind: "take", state: view.state, options: near.of.options });
  };
  $("front").tabIndex = 0;
  $("front").onkeydown = (event) => {
    const known = ($("front").drawn ?? []).map(({ point }) => point.of).filter(Boolean).sort((a, b) => a.cost - b.cost || a.error - b.error);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && known.length) {
      event.preventDefault();
      view.marked = known[(known.findIndex((one) => one.options === view.marked?.options) + step + known.length) % known.length];
      $("front-text").textContent = `${view.marked.name}: error ${Number((100 * view.marked.error).toPrecision(2))} %${frozen ? "" : "; Enter takes it"}`;
      paint();
    }
    if (event.key === "Enter" && view.marked && !frozen) send({ kind: "take", state: view.state, options: view.marked.options });
  };
  $("front").onmousemove = (event) => {
    const near = ($("front").drawn ?? []).find(({ x, y, point }) => point.of && Math.hypot(x - event.offsetX, y - event.offsetY) < 8);
    $("front").title = near ? `${near.point.of.name}: click to take it` : "";
  };
  $("copy").onclick = async () => { await navigator.clipboard?.writeText($("command").textContent); $("copy").textContent = "Copied"; setTimeout(() => { $("copy").textContent = "Copy"; }, 1500); };
  $("theme").onclick = () => {
    const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    repaint(); paint(); drawRuns();
  };
  addEventListener("resize", () => { repaint(); paint(); drawRuns(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { repaint(); paint(); drawRuns(); });
  if (frozen === null) {
    const over = (wanted) => document.body.classList.toggle("dropping", wanted);
    addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) { event.preventDefault(); over(true); } });
    addEventListener("dragleave", (event) => { if (event.relatedTarget === null) over(false); });
    addEventListener("drop", (event) => { over(false); if (event.dataTransfer.files.length) { event.preventDefault(); couple(event.dataTransfer.files); } });
    $("fmus").onchange = () => couple($("fmus").files);
  }
  addEventListener("hashchange", () => { const linked = fromLink(); if (linked) { view.state = {}; change(linked); } });
}

// ---- pictures ---------------------------------------------------------------------------------------------------------

let pending = false;
function paint() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; show(); });
}

// The slider also has the step at hand, where that was typed in or comes from a link.
function grid(about, step) {
  if (!about.steps.includes(step)) about.steps = [...about.steps, step].sort((a, b) => a - b);
  if (Number($("step").max) !== about.steps.length - 1) $("step").max = about.steps.length - 1;
}

function show() {
  const about = view.description;
  if (!about) return;
  grid(about, here());
  const step = here(), frame = view.frames.get(step), full = view.verdict && view.verdictStep === step ? view.verdict : null;
  drawRail(about);
  drawErrors(about, frame);
  drawPoles(about, frame);
  drawGrowth(about, frame);
  drawCourses(step);
  $("step").value = String(about.steps.reduce((best, one, place) => (Math.abs(Math.log(one / step)) < Math.abs(Math.log(about.steps[best] / step)) ? place : best), 0));
  fill($("step-exact"), step);
  const said = frame?.step_text ?? seconds(step);
  say("step-text", said);
  $("step").setAttribute("aria-valuetext", `${said}${frame ? `, ${frame.headline}` : ""}`);
  card(frame, full);
  bars(full ?? frame, frame, about);
  critical(full);
  wire(full);
  drawFront(about, frame);
  const text = saying(step);
  if (text) { say("command", text.command); say("lines", text.lines); say("run-command", text.command.replace("cosimo analyse", "cosimo run")); }
  if (full && view.spoken !== full) { view.spoken = full; $("spoken").textContent = `${said}: ${full.headline}. ${$("advice-text").textContent}`; }
  document.documentElement.dataset.ready = "yes";
  document.documentElement.dataset.shown = frame || full || view.gaps.has(step) ? String(step) : "";
  document.documentElement.dataset.full = full ? String(step) : "";
}

function card(frame, full) {
  const about = view.description, found = full ?? frame;
  const mark = full ? { yes: "good", "with care": "care", no: "bad" }[full.trust] ?? "open" : frame?.mark ?? "open";
  $("card").className = `verdict ${mark}`;
  say("badge", found ? MARKS[mark] : "…");
  $("brief").className = mark;
  say("brief", found ? `${MARKS[mark]} ${found.headline}` : "");
  const gap = view.gaps.get(here());
  say("headline", found?.headline ?? (gap ? "Not assessed" : about.live ? "Computing" : "Pilot runs are being made"));
  say("sentence", (frame ? `${frame.master}. ${full ? "" : frame.text}` : full ? `${full.description}.` : gap ?? about.doubt) ?? "");
  const known = { proved: "Proved: the equations of all units are known.", confirmed: "Confirmed by pilot runs.", measured: "Measured in pilot runs.", none: "" };
  say("evidence", full ? `${known[full.evidence] ?? ""} Full verdict.` : `${known[frame?.evidence] ?? ""}${view.judging ? " The full verdict is being computed." : ""}`);
  const advice = full?.recommendation;
  $("advice").hidden = !advice?.text;
  say("advice-text", advice?.text ? `${advice.keep ? "Advice" : "Fix"}: ${advice.text}` : "");
  $("take").hidden = !advice?.options || Boolean(frozen);
}

function stability(about) {
  return about.steps.map((step) => view.frames.get(step)?.stable ?? (view.curve?.steps.length ? view.curve.stable[view.curve.steps.indexOf(step)] : undefined));
}

function drawRail(about) {
  const full = view.verdict, limit = full?.critical_step ?? null;
  let place = null;
  if (limit > 0) {
    const after = about.steps.findIndex((step) => step > limit);
    if (after > 0) place = after - 1 + Math.log(limit / about.steps[after - 1]) / Math.log(about.steps[after] / about.steps[after - 1]);
  }
  const stable = stability(about);
  rail($("rail"), stable, place);
  const first = stable.indexOf(false);
  const blank = about.live ? about.steps.filter((one, place) => stable[place] == null) : [];
  const grey = blank.some((step) => !view.gaps.has(step)) ? " Grey: being computed." : blank.length ? " Grey: not known." : "";
  say("rail-text", limit > 0 ? `Largest stable step: ${seconds(limit)} (marked). Shaded: unstable.${grey}`
    : first >= 0 ? `Shaded: unstable.${grey}` : stable.some((one) => one === true) ? `No step on this slider is known to be unstable.${grey}` : "");
}

function shaded(about) {
  const stable = stability(about), steps = about.steps, middle = (a, b) => Math.sqrt(steps[a] * steps[b]);
  return steps.flatMap((step, place) => (stable[place] === false
    ? [{ from: place ? middle(place - 1, place) : step, to: place + 1 < steps.length ? middle(place, place + 1) : step, colour: "bad-soft" }] : []));
}

function bars(found, frame, about) {
  const errors = found?.errors ?? {}, target = about.target, texts = frame?.texts ?? {};
  const names = Object.keys(errors).sort((a, b) => (errors[b] ?? Infinity) - (errors[a] ?? Infinity)).slice(0, 40);
  $("bars").classList.toggle("waiting", !found);
  $("bars").replaceChildren(...names.map((name) => {
    const share = errors[name] ?? Infinity, width = Math.min(1, Math.max(0.01, (Math.log10(share / target) + 2) / 4));
    const row = Object.assign(document.createElement("div"), { className: `bar-row${share > target ? " over" : ""}` });
    row.setAttribute("role", "listitem");
    const text = texts[name] ?? (Number.isFinite(share) ? `${Number((100 * share).toPrecision(2))} %` : "diverges");
    const cells = [Object.assign(document.createElement("span"), { textContent: name }), Object.assign(document.createElement("span"), { className: "track" }), Object.assign(document.createElement("span"), { textContent: text })];
    const bar = document.createElement("i");
    bar.style.width = `${100 * width}%`;
    cells[1].append(bar, document.createElement("b"));
    row.append(...cells);
    return row;
  }));
}

function drawErrors(about, frame) {
  const known = about.steps.map((step) => view.frames.get(step)?.error ?? null), top = 100;
  plot($("errors"), {
    x: { label: "communication step / s", log: true, range: [about.steps[0], about.steps.at(-1)] },
    y: { label: "relative error", log: true, range: [Math.min(about.target / 10, ...known.filter((one) => one > 1e-12)), top] },
    lines: [{ x: about.steps, y: known, colour: "accent" }], bands: shaded(about),
    marks: [{ at: about.target, axis: "y", dash: [5, 4] }],
    points: frame ? [{ x: frame.step, y: Math.min(frame.error ?? top, top), colour: frame.stable ? "accent" : "bad", size: 5 }] : [],
    label: frame ? `error over step; at ${frame.step_text} ${frame.headline}` : "error over step",
  });
}

function drawPoles(about, frame) {
  const exact = about.exact;
  if (frame && view.trail.at(-1) !== frame) view.trail = [...view.trail, frame].slice(-TRAIL);
  const reach = Math.max(...exact.map(([re, im]) => Math.hypot(re, im)), 1e-9), near = [...exact, ...(frame?.poles ?? [])].map(([re]) => re).filter((re) => Math.abs(re) < reach);
  const left = 1.6 * Math.min(-0.01 * reach, ...near), right = 1.6 * Math.max(0.01 * reach, ...near);
  const trail = view.trail.slice(0, -1).flatMap((one, age) => one.poles.map(([x, y]) => ({ x, y, colour: one.stable ? "accent" : "bad", size: 2, alpha: 0.1 + 0.4 * age / TRAIL })));
  plot($("poles"), {
    x: { label: "real part / (1/s)", range: [left, right] }, y: { label: "imaginary part / (1/s)", range: [-0.06 * reach, 1.3 * reach] },
    bands: [{ from: 0, to: right, colour: "bad-soft" }],
    points: [...trail, ...exact.map(([x, y]) => ({ x, y, colour: "ink", shape: "cross", size: 5 })), ...(frame?.poles ?? []).map(([x, y]) => ({ x, y, colour: frame.stable ? "accent" : "bad" }))],
    label: frame ? `${frame.poles.length} poles under this master; ${frame.stable ? "none grows" : "one grows"}` : "poles",
  });
}

function drawGrowth(about, frame) {
  const steps = view.curve?.steps.length ? view.curve.steps : about.steps;
  const growth = view.curve?.steps.length ? view.curve.growth : about.steps.map((step) => view.frames.get(step)?.growth_rate ?? null);
  const own = view.curve?.own ?? null, known = growth.filter((one) => one !== null);
  const low = Math.min(...known, own ?? 0, 0), high = Math.max(...known, own ?? 0, 0), most = 3 * Math.max(Math.abs(own ?? 0), Math.abs(frame?.growth_rate ?? 0), 1e-3 * high, 1e-12);
  plot($("growth"), {
    x: { label: "communication step / s", log: true, range: [steps[0], steps.at(-1)] },
    y: { label: "growth / (1/s)", range: [Math.max(low * 1.1, -most), Math.min(high * 1.1 || most, most)] },
    bands: [{ from: 0, to: 1e300, axis: "y", colour: "bad-soft" }],
    lines: [{ x: steps, y: growth, colour: "accent" }], marks: own === null ? [] : [{ at: own, axis: "y", dash: [5, 4] }],
    points: frame ? [{ x: frame.step, y: frame.growth_rate, colour: frame.stable ? "accent" : "bad", size: 5 }] : [],
    label: frame ? `growth over step; here ${frame.growth_rate?.toPrecision(3)} per second` : "growth over step",
  });
}

function canvases(box, names, className) {
  if (box.dataset.of !== names.join("\n")) {
    box.dataset.of = names.join("\n");
    box.replaceChildren(...names.map((name) => Object.assign(document.createElement("canvas"), { className })));
    for (const canvas of box.children) canvas.setAttribute("role", "img");
  }
  return [...box.children];
}

function drawCourses(step) {
  const found = view.courses.get(step), names = view.outputs, box = $("courses");
  box.classList.toggle("waiting", !found);
  canvases(box, names, "course").forEach((canvas, place) => {
    const one = found?.[names[place]] && { true: view.truths?.get(step)?.[names[place]]?.true, ...found[names[place]] };
    if (!one?.true) return;
    const values = one.true[1].filter((value) => value !== null), low = Math.min(...values), high = Math.max(...values), room = 0.6 * (high - low || 1);
    plot(canvas, {
      x: { label: "time / s", range: [one.true[0][0], one.true[0].at(-1)] }, y: { label: names[place], range: [low - room, high + room] },
      lines: [{ x: one.true[0], y: one.true[1], colour: "muted", width: 5, alpha: 0.4 }, { x: one.predicted[0], y: one.predicted[1], colour: "accent", width: 1.4 }],
      label: `${names[place]}: predicted over the true one until ${one.true[0].at(-1)} s`,
    });
  });
}

// ---- connections: thick and red by what they contribute to the error, details on a click ---------------------------------

const named = (path) => (view.description.links ?? []).find((one) => path.querySelector("title")?.textContent.replace(/ \(gain [^()]*\)$/, "") === one) ?? null;

function links() {
  for (const path of $("graph").querySelectorAll("path.link:not(.outside)")) {
    const own = path.own = named(path), choose = () => { view.chosen = view.chosen === own ? null : own; paint(); };
    path.setAttribute("tabindex", "0"); path.setAttribute("role", "button"); path.setAttribute("aria-label", own ?? "connection");
    path.onclick = choose;
    path.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
  }
}

function wire(full) {
  const shares = full ? view.shares : {}, wires = view.wiresStep === here() ? view.wires : view.wires.map((one) => ({ ...one, defect: null }));
  for (const path of $("graph").querySelectorAll("path.link:not(.outside)")) {
    const { own } = path, share = shares[own] ?? 0;
    path.style.strokeWidth = `${1.5 + 4.5 * share}px`;
    path.style.stroke = share ? `color-mix(in srgb, var(--bad) ${Math.round(100 * share)}%, var(--muted))` : "";
    path.classList.toggle("chosen", own !== null && own === view.chosen);
  }
  const found = wires.find((one) => one.connection === view.chosen);
  $("wire").hidden = !found;
  if (!found) return;
  const effect = full?.connections?.find((one) => one.connection === view.chosen), share = shares[view.chosen];
  const rows = [["connection", found.connection], ["gain", found.gain + (found.offset ? `, offset ${found.offset}` : "")], ["coupling", found.coupling],
    ["delay", effect ? `${effect.delay} macro steps on average` : "not known yet"],
    ["defect", found.defect === null ? "not known at this step" : `${Number((100 * found.defect).toPrecision(2))} % of the largest value, at the end of a macro step`],
    ["contribution", share === undefined ? "not known at this step" : `without its delay alone, ${full?.stable === false ? "the growth" : "the error"} falls by ${Math.round(100 * share)} %`]];
  $("wire").replaceChildren(...rows.flatMap(([name, text]) => [Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: text })]));
}

function drawFront(about, frame) {
  const known = view.front.map((one) => ({ x: one.cost, y: one.error, colour: one.error <= about.target ? "good" : "muted", size: 3, alpha: 0.75, of: one }));
  const here = frame && frame.error > 0 ? [{ x: frame.cost, y: Math.min(frame.error, 10), colour: frame.stable ? "accent" : "bad", size: 6 }] : [];
  plot($("front"), {
    x: { label: "cost: unit steps per simulated second", log: true }, y: { label: "relative error", log: true },
    points: [...known, ...here, ...view.front.filter((one) => one.options === view.marked?.options).map((one) => ({ x: one.cost, y: one.error, colour: "ink", shape: "cross", size: 7 }))], marks: [{ at: about.target, axis: "y", dash: [5, 4] }],
    label: frame ? `error over cost of ${known.length} masters; here error ${frame.error ?? "unbounded"} at cost ${frame.cost}` : "error over cost",
  });
}

function critical(full) {
  const worst = full?.worst_connection?.connection ?? null;
  say("critical", worst ? `Most critical connection: ${worst}.` : "");
  for (const path of $("graph").querySelectorAll("path.link")) {
    const mine = worst !== null && path.own === worst;
    if (path.classList.contains("worst") === mine) continue;
    path.classList.toggle("worst", mine);
    path.setAttribute("marker-end", `url(#arrow-${mine ? "worst" : "plain"})`);
  }
}

// ---- runs -------------------------------------------------------------------------------------------------------------

function showRuns() {
  const heads = ["run", "file", "state", "rows", "time reached", "× real time", "time per unit", ""], table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const text of heads) head.append(Object.assign(document.createElement("th"), { textContent: text }));
  for (const run of view.runs) {
    const row = body.insertRow();
    row.title = run.command;
    const state = [run.state, run.said, ...run.warnings].filter(Boolean).join("; "), going = ["running", "paused"].includes(run.state);
    const reached = `${Number(run.reached.toPrecision(6))}${run.stop && going ? ` of ${run.stop}` : ""} s`, speed = run.speed === null ? "" : String(Number(run.speed.toPrecision(3)));
    const units = Object.entries(run.unit_times ?? {}).map(([name, seconds]) => `${name} ${Number(seconds.toPrecision(2))} s`).join(", ") || (run.state === "done" ? "too short to tell" : "");
    const shown = Object.assign(document.createElement("input"), { type: "checkbox", checked: !view.hidden.has(run.number), onchange: () => { if (!view.hidden.delete(run.number)) view.hidden.add(run.number); drawRuns(); } });
    const label = Object.assign(document.createElement("label"), { className: "swatch", title: "Show it in the chart" });
    label.style.setProperty("--own", `var(--${COLOURS[(run.number - 1) % COLOURS.length]})`);
    label.append(shown, ` ${run.number}`);
    row.insertCell().append(label);
    for (const text of [run.file, state, run.rows.toLocaleString("en"), reached, speed, units]) row.insertCell().textContent = text;
    const last = row.insertCell();
    if (going) last.append(Object.assign(document.createElement("button"), { type: "button", textContent: run.state === "paused" ? "Go on" : "Pause", onclick: () => send({ kind: "pause", run: run.number, wanted: run.state !== "paused" }) }));
    if (going) last.append(Object.assign(document.createElement("button"), { type: "button", textContent: run.stopping ? "End it now" : "Stop", title: run.stopping ? "It does not stop: end its process" : "Keeps the rows so far", onclick: () => send({ kind: "stop", run: run.number }) }));
  }
  $("run-list").replaceChildren(...(view.runs.length ? [table] : []));
  $("run-figure").hidden = !view.runs.length;
  const names = [...new Set(view.runs.flatMap((run) => run.names))];
  if (names.length && !view.watched.length) watch(view.outputs.filter((name) => names.includes(name)).slice(0, 2), names);
  if ($("run-names").dataset.of !== names.join("\n")) {
    $("run-names").dataset.of = names.join("\n");
    $("run-names").replaceChildren(...names.slice(0, 60).map((name) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
      button.setAttribute("aria-pressed", String(view.watched.includes(name)));
      button.onclick = () => {
        watch(view.watched.includes(name) ? view.watched.filter((other) => other !== name) : [...view.watched, name].slice(-3), names);
        for (const other of $("run-names").children) other.setAttribute("aria-pressed", String(view.watched.includes(other.textContent)));
      };
      return button;
    }));
  }
  drawRuns();
}

function watch(wanted, names) {
  view.watched = wanted.length ? wanted : names.slice(0, 1);
  send({ kind: "watch", names: view.watched, span: view.span });
  drawRuns();
}

function samples(data) {
  const head = new DataView(data), number = head.getUint32(0, true), place = head.getUint32(4, true), values = new Float64Array(data.slice(8)), count = values.length / 2;
  const run = view.runs.find((one) => one.number === number);
  if (!run) return;
  view.samples.set(`${number} ${run.names[place]}`, { x: values.subarray(0, count), y: values.subarray(count) });
  drawRuns();
}

// Dragging over a chart shows that part of the time as fine as the file is, a double click all of it.
function zoomable(canvas) {
  let from = null;
  canvas.onpointerdown = (event) => { from = event.offsetX; };
  canvas.onpointerup = (event) => {
    const ends = [from, event.offsetX].sort((a, b) => a - b);
    if (from !== null && ends[1] - ends[0] > 8 && canvas.timeAt) { view.span = ends.map(canvas.timeAt); watch(view.watched, view.watched); }
    from = null;
  };
  canvas.ondblclick = () => { view.span = null; watch(view.watched, view.watched); };
  canvas.tabIndex = 0;
  canvas.onkeydown = (event) => {
    const [low, high] = view.span ?? canvas.extent ?? [0, 1], wide = high - low;
    const next = { "+": [low + wide / 4, high - wide / 4], "-": [low - wide / 2, high + wide / 2], ArrowLeft: [low - wide / 4, high - wide / 4], ArrowRight: [low + wide / 4, high + wide / 4], 0: null }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    view.span = next;
    watch(view.watched, view.watched);
  };
}

let drawing = false;
function drawRuns() {
  if (drawing || !view.runs.length) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const runs = view.runs.filter((run) => !view.hidden.has(run.number));
    canvases($("run-charts"), view.watched, "course").forEach((canvas, place) => {
      const name = view.watched[place], lines = runs.flatMap((run) => {
        const found = view.samples.get(`${run.number} ${name}`);
        return found ? [{ x: found.x, y: found.y, colour: COLOURS[(run.number - 1) % COLOURS.length], width: 1.4 }] : [];
      });
      const predicted = view.courses.get(here())?.[name], now = saying(here())?.command.replace("cosimo analyse ", "");
      if (predicted && runs.some((run) => run.words === now)) lines.push({ x: predicted.predicted[0], y: predicted.predicted[1], colour: "ink", width: 1, dash: [3, 3] });
      if (predicted) lines.unshift({ x: predicted.true[0], y: predicted.true[1], colour: "muted", width: 5, alpha: 0.4 });
      const marks = runs.flatMap((run) => run.marks.map((one) => ({ at: one.time, dash: [2, 3], colour: "bad" })));
      if (canvas.zoom === undefined) { canvas.zoom = true; zoomable(canvas); }
      plot(canvas, { x: { label: view.span ? "time / s, a part of it: double-click for all" : "time / s", range: view.span ?? undefined }, y: { label: name }, lines, marks, label: `${name} of ${runs.length} runs` });
      canvas.dataset.points = String(lines.reduce((sum, line) => sum + line.x.length, 0));
    });
  });
}

// ---- beginning --------------------------------------------------------------------------------------------------------

listen();
if (frozen === null) connect();
else {
  document.body.classList.add("frozen");
  view.state = frozen.state; view.outputs = frozen.outputs;
  view.truths = new Map(frozen.entries[0].messages.filter((message) => message.kind === "course").map((message) => [message.step, message.outputs]));
  look();
  for (const control of document.querySelectorAll("#controls input:not(#step), #single select, #outputs button")) control.disabled = true;
  for (const item of $("order").children) Object.assign(item, { draggable: false, onkeydown: null });
  paint();
}
