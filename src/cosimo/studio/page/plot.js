// Charts on a canvas: lines, points, shaded ranges and marks. It draws numbers that are given, and computes none.
// A canvas of a few thousand points is drawn in under a millisecond, so no library is needed.

let palette = new Map();
const colour = (name) => {
  if (!palette.has(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || name);
  return palette.get(name);
};
// To be called where the colours may have changed: asking the style for each of them takes longer than drawing.
export function repaint() { palette = new Map(); }

// Sizes are noted when they change: asking a canvas for its own lays the whole page out anew, for every chart.
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const now = [contentRect.width, contentRect.height], same = target.box?.every((one, place) => one === now[place]);
    target.box = now;
    if (!same && target.redraw) target.redraw();
  }
});

function clear(canvas) {
  if (canvas.box === undefined) { canvas.box = [canvas.clientWidth, canvas.clientHeight]; sizes.observe(canvas); }
  const [wide, high] = canvas.box, ratio = window.devicePixelRatio || 1;
  const size = [Math.round(wide * ratio), Math.round(high * ratio)], pen = canvas.getContext("2d");
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.globalAlpha = 1; pen.setLineDash([]);
  return [pen, wide, high];
}
const finite = (value) => value !== null && Number.isFinite(value);

function ticks(low, high, log, room) {
  if (log) {
    const found = [];
    for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power += 1) found.push(10 ** power);
    if (found.length > 1) return found;
  }
  const raw = (high - low) / Math.max(2, room), unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((candidate) => candidate >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const written = (value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  return (size >= 1e5 || size < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(3)))).replace("-", "−").replace("e+", "e");
};

function extent(given, values, log) {
  if (given) return given;
  let low = Infinity, high = -Infinity;
  for (const row of values) for (const value of row) if (finite(value) && (!log || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [log ? 0.1 : 0, 1];
  if (log) return [low / 1.5, high * 1.5];
  const space = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return [low - space, high + space];
}

// spec: {x, y: {label, log, range}, lines: [{x, y, colour, width, dash, alpha}], points: [{x, y, colour, shape}],
//        bands: [{from, to, colour, axis}], marks: [{at, axis, dash}], label}
export function plot(canvas, spec) {
  canvas.spec = spec; canvas.redraw = () => draw(canvas, canvas.spec);
  canvas.setAttribute("aria-label", spec.label);
  if (canvas.seen === undefined) { canvas.seen = true; watcher.observe(canvas); }
  if (canvas.seen) draw(canvas, spec);
}

// Only what is on the screen, or near it, is drawn; the rest when it comes into view.
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const came = isIntersecting && !target.seen;
    target.seen = isIntersecting;
    if (came) draw(target, target.spec);
  }
}, { rootMargin: "200px" });

function draw(canvas, spec) {
  const [pen, wide, high] = clear(canvas);
  if (!wide || !high) return;
  pen.font = "11px system-ui, sans-serif";
  const area = { left: 52, right: wide - 12, top: 10, bottom: high - 34 };
  const lines = spec.lines ?? [], points = spec.points ?? [];
  const scale = (axis, from, to) => {
    const log = spec[axis].log, [low, top] = extent(spec[axis].range, [...lines.map((line) => line[axis]), points.map((point) => point[axis])], log);
    const turn = log ? Math.log10 : (value) => value;
    const place = (value) => from + (turn(value) - turn(low)) / (turn(top) - turn(low)) * (to - from);
    return { low, top, log, place };
  };
  const X = scale("x", area.left, area.right), Y = scale("y", area.bottom, area.top);
  pen.lineWidth = 1;
  for (const band of spec.bands ?? []) {
    const A = band.axis === "y" ? Y : X, limit = (value) => A.place(Math.min(Math.max(value, A.low), A.top));
    pen.fillStyle = colour(band.colour);
    const from = limit(band.from), to = limit(band.to);
    if (band.axis === "y") pen.fillRect(area.left, Math.min(from, to), area.right - area.left, Math.abs(to - from));
    else pen.fillRect(from, area.top, to - from, area.bottom - area.top);
  }
  pen.fillStyle = colour("muted"); pen.strokeStyle = colour("grid");
  pen.textAlign = "center";
  for (const value of ticks(X.low, X.top, X.log, (area.right - area.left) / 70)) {
    const x = X.place(value);
    pen.beginPath(); pen.moveTo(x, area.top); pen.lineTo(x, area.bottom); pen.stroke();
    pen.fillText(written(value), x, area.bottom + 14);
  }
  pen.fillText(spec.x.label, (area.left + area.right) / 2, high - 5);
  pen.textAlign = "right";
  for (const value of ticks(Y.low, Y.top, Y.log, (area.bottom - area.top) / 40)) {
    const y = Y.place(value);
    pen.beginPath(); pen.moveTo(area.left, y); pen.lineTo(area.right, y); pen.stroke();
    pen.fillText(written(value), area.left - 6, y + 4);
  }
  pen.save();
  pen.translate(11, (area.top + area.bottom) / 2); pen.rotate(-Math.PI / 2); pen.textAlign = "center";
  pen.fillText(spec.y.label, 0, 0);
  pen.restore();
  pen.save();
  pen.beginPath(); pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top); pen.clip();
  for (const mark of spec.marks ?? []) {
    const vertical = mark.axis !== "y", at = vertical ? X.place(mark.at) : Y.place(mark.at);
    pen.strokeStyle = colour(mark.colour ?? "muted"); pen.setLineDash(mark.dash ?? []); pen.lineWidth = 1.4;
    pen.beginPath();
    if (vertical) { pen.moveTo(at, area.top); pen.lineTo(at, area.bottom); } else { pen.moveTo(area.left, at); pen.lineTo(area.right, at); }
    pen.stroke();
  }
  for (const line of lines) {
    // A line of one pixel of the screen is drawn eight times as fast as a wider one, and shows as much of many points.
    const thin = line.x.length > 1000 ? 1 / (window.devicePixelRatio || 1) : Infinity;
    pen.strokeStyle = colour(line.colour); pen.lineWidth = Math.min(thin, line.width ?? 1.6); pen.setLineDash(line.dash ?? []); pen.globalAlpha = line.alpha ?? 1;
    pen.lineJoin = line.x.length > 1000 ? "bevel" : "round";
    pen.beginPath();
    let open = false;
    for (let place = 0; place < line.x.length; place += 1) {
      const value = line.y[place], there = finite(value) && (!Y.log || value > 0);
      if (there) { const x = X.place(line.x[place]), y = Y.place(value); if (open) pen.lineTo(x, y); else pen.moveTo(x, y); }
      open = there;
    }
    pen.stroke();
  }
  pen.setLineDash([]);
  canvas.drawn = [];
  canvas.extent = [X.low, X.top];
  canvas.timeAt = (at) => X.low + (at - area.left) / (area.right - area.left) * (X.top - X.low);
  for (const point of points) {
    if (!finite(point.x) || !finite(point.y)) continue;
    const x = X.place(point.x), y = Y.place(point.y), r = point.size ?? 4;
    canvas.drawn.push({ x, y, point });
    pen.globalAlpha = point.alpha ?? 1; pen.fillStyle = pen.strokeStyle = colour(point.colour); pen.lineWidth = 1.6;
    pen.beginPath();
    if (point.shape === "cross") { pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r); pen.moveTo(x - r, y + r); pen.lineTo(x + r, y - r); pen.stroke(); }
    else { pen.arc(x, y, r, 0, 2 * Math.PI); pen.fill(); }
  }
  pen.restore();
}

// The rail under the slider: positions that are unstable are shaded, the critical step is marked.
export function rail(canvas, stable, critical) {
  const [pen, wide, high] = clear(canvas), count = stable.length;
  pen.fillStyle = colour("faint"); pen.fillRect(0, 0, wide, high);
  stable.forEach((one, place) => {
    if (one === undefined || one === null) return;
    pen.fillStyle = colour(one ? "good-soft" : "bad-soft");
    const from = (place - 0.5) / (count - 1) * wide, to = (place + 0.5) / (count - 1) * wide;
    pen.fillRect(from, 0, to - from + 0.5, high);
    if (one) return;
    pen.strokeStyle = colour("bad"); pen.globalAlpha = 0.35;
    pen.beginPath(); pen.moveTo(from, high); pen.lineTo(to, 0); pen.stroke(); pen.globalAlpha = 1;
  });
  if (critical === null) return;
  pen.fillStyle = colour("bad"); pen.fillRect(critical / (count - 1) * wide - 1, 0, 2, high);
}
