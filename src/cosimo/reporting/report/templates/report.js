"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);

  // ---- light and dark: the theme of the system, until the button says otherwise ---------------------------------
  const root = document.documentElement;
  $("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // ---- where the reader is ---------------------------------------------------------------------------------------
  const links = [...document.querySelectorAll("nav a")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links) link.classList.toggle("here", link.hash === "#" + entry.target.id);
    }
  }, { rootMargin: "-60px 0px -70% 0px" });
  document.querySelectorAll("section").forEach((section) => seen.observe(section));

  // ---- folded parts open when they are asked for; figures in them then take their width ----------------------------
  const folds = [...document.querySelectorAll("details.fold")];
  for (const fold of folds) fold.addEventListener("toggle", () => fold.open && fold.querySelectorAll(".js-plotly-plot").forEach((where) => Plotly.Plots.resize(where)));
  const unfold = () => { const fold = location.hash && document.querySelector(CSS.escape(location.hash).replace("\\#", "#") + " > .fold"); if (fold) fold.open = true; };
  for (const link of links) link.addEventListener("click", () => setTimeout(unfold));
  unfold();

  // ---- what can be copied ------------------------------------------------------------------------------------------
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      getSelection().selectAllChildren(code);
      try { await navigator.clipboard.writeText(code.textContent); } catch { document.execCommand("copy"); }
      button.textContent = "Copied";
    });
  }

  // ---- numbers and the drawing library ---------------------------------------------------------------------------
  async function inflate(id) {
    const letters = atob($(id).textContent), packed = new Uint8Array(letters.length);
    for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }
  const TYPES = { Float64Array, Float32Array, Uint32Array };
  let buffer = null;
  const view = (part) => new TYPES[part.type](buffer, part.start, part.length);
  function series(entry) {
    const small = view(entry.y), places = view(entry.x);
    const y = Float64Array.from(small, (v) => entry.shift + entry.scale * v);
    const x = entry.dt === undefined ? places : Float64Array.from(places, (k) => entry.t0 + k * entry.dt);
    return { x, y };
  }

  // ---- figures ---------------------------------------------------------------------------------------------------
  const FONT = getComputedStyle(document.body).fontFamily;
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
  function base(more) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: FONT, size: 12.5 },
      margin: { l: 70, r: 18, t: 26, b: 50 }, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hoverlabel: { bgcolor: "#1c2430", bordercolor: "#1c2430", font: { color: "#ffffff", family: FONT, size: 12.5 }, align: "left", namelength: -1 },
      height: 360, ...more,
    };
  }
  const axis = (more) => ({
    automargin: true, zeroline: false, ticks: "", exponentformat: "power",
    ...(more.type === "log" ? { dtick: 1, minor: { dtick: "D1", showgrid: true } } : {}), ...more,
  });
  function withAxes(layout) {
    const full = base(layout);
    for (const name of Object.keys(full)) if (/^[xy]axis/.test(name)) full[name] = axis(full[name]);
    return full;
  }
  const place = (key, number = 0) => $("plot-" + key + "-" + number);
  async function draw(where, traces, layout) {
    where.querySelector(".pending")?.remove();
    where.style.height = layout.height + "px";
    await Plotly.react(where, traces, layout, CONFIG);
  }

  // Rows of a table and points of a figure light up together.
  function connect(table, where, find) {
    const rows = [...table.querySelectorAll("tr.link")];
    const light = (number) => rows.forEach((row) => row.classList.toggle("lit", Number(row.dataset.point) === number));
    for (const row of rows) {
      const number = Number(row.dataset.point);
      const show = () => { light(number); Plotly.Fx.hover(where, find(number)); };
      row.addEventListener("mouseenter", show);
      row.addEventListener("focus", show);
      row.addEventListener("click", show);
      row.addEventListener("mouseleave", () => { light(-1); Plotly.Fx.unhover(where); });
      row.addEventListener("blur", () => light(-1));
    }
    where.on("plotly_hover", (event) => {
      const point = event.points[0];
      if (point.customdata !== undefined) light(Number(point.customdata) - (table.id === "table-modes" ? 1 : 0));
    });
    where.on("plotly_unhover", () => light(-1));
    where.on("plotly_click", (event) => {
      const number = Number(event.points[0].customdata) - (table.id === "table-modes" ? 1 : 0);
      rows.find((row) => Number(row.dataset.point) === number)?.scrollIntoView({ block: "nearest" });
    });
  }

  async function plain(key, number, figure) {
    const where = place(key, number);
    await draw(where, figure.data, withAxes(figure.layout));
    for (const button of document.querySelectorAll(`#${key} [data-views="${number}"] button`)) {
      button.addEventListener("click", () => {
        const chosen = figure.views[Number(button.dataset.view)];
        button.parentElement.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", b === button));
        Plotly.update(where, { y: chosen.y }, chosen.layout);
      });
    }
  }

  // Panels below each other over one time axis; numbered warnings stand on it.
  function panels(list, marks, height) {
    const traces = [], layout = { margin: { l: 70, r: 18, t: 58, b: 50 }, legend: { orientation: "h", x: 0, y: 1, yanchor: "top", yref: "container" }, height: 108 + height * list.length, hovermode: "x unified", annotations: [], shapes: [] };
    const gap = 26 / (height * list.length), each = (1 - gap * (list.length - 1)) / list.length;
    const named = new Set();
    list.forEach((panel, number) => {
      const y = number ? "y" + (number + 1) : "y", top = 1 - number * (each + gap);
      layout["yaxis" + (number ? number + 1 : "")] = { domain: [Math.max(0, top - each), top], zeroline: true, nticks: 5, ...(panel.range ? { range: panel.range } : {}) };
      layout.annotations.push({ x: 0, xref: "paper", xanchor: "left", y: top, yref: "paper", yanchor: "bottom", text: panel.title, showarrow: false, font: { size: 12.5 } });
      for (const line of panel.lines) {
        traces.push({
          type: "scatter", mode: "lines", name: line.name, legendgroup: line.name, showlegend: !named.has(line.name), yaxis: y,
          line: { color: line.colour, dash: line.dash, width: line.width || 1.6 }, opacity: (line.width || 0) > 3 ? 0.55 : 1,
          ...series(line.series), hovertemplate: "%{y:.6g}",
        });
        named.add(line.name);
      }
    });
    layout.xaxis = { title: { text: "time / s" }, anchor: list.length > 1 ? "y" + list.length : "y" };
    let last = -Infinity, high = 0;
    const all = traces.flatMap((trace) => [trace.x[0], trace.x[trace.x.length - 1]]).filter(Number.isFinite);
    const near = 0.025 * (Math.max(...all) - Math.min(...all));
    for (const mark of marks) {
      // Numbers that would lie over each other are stacked.
      high = mark.time - last < near ? high + 19 : 0;
      last = mark.time;
      layout.shapes.push({ type: "line", x0: mark.time, x1: mark.time, y0: 0, y1: 1, yref: "paper", line: { color: "#d65f0e", width: 1, dash: "dot" } });
      layout.annotations.push({ x: mark.time, y: 0, yref: "paper", yanchor: "bottom", yshift: high, bgcolor: "rgba(255,255,255,0.0)", text: "<b>" + mark.number + "</b>", showarrow: false, font: { size: 11 }, bordercolor: "#d65f0e", borderpad: 2, borderwidth: 1 });
    }
    return [traces, withAxes(layout)];
  }

  async function drawRuns(found) {
    const where = place("runs"), chips = $("chips"), chosen = new Set(found.shown);
    let differences = false;
    const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
    const show = () => {
      const source = differences ? found.differences : found.values;
      const list = found.signals.filter((name) => chosen.has(name)).map((name) => ({
        title: escape(name + (found.physical[name] ? " / " + found.physical[name] : "")), range: differences ? null : found.ranges[name],
        lines: found.runs.map((run, number) => ({ ...run, name: escape(run.name), series: source[name][number] })).filter((line) => line.series),
      }));
      const [traces, layout] = panels(list.length ? list : [{ title: "", lines: [] }], found.marks, list.length > 2 ? 170 : 250);
      return draw(where, traces, layout);
    };
    for (const name of found.signals) {
      const chip = document.createElement("button");
      chip.type = "button";
      chip.textContent = name;
      chip.setAttribute("aria-pressed", chosen.has(name));
      chip.addEventListener("click", () => {
        if (!chosen.delete(name)) chosen.add(name);
        chip.setAttribute("aria-pressed", chosen.has(name));
        show();
      });
      chips.append(chip);
    }
    $("filter")?.addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const chip of chips.children) chip.hidden = !chip.textContent.toLowerCase().includes(wanted);
    });
    for (const [id, off] of [["show-values", false], ["show-differences", true]]) {
      $(id)?.addEventListener("click", () => {
        differences = off;
        $("show-values").setAttribute("aria-pressed", !off);
        $("show-differences").setAttribute("aria-pressed", off);
        show();
      });
    }
    await show();
  }

  // On paper, figures are as wide as the page.
  const PAPER = 680;
  const resize = (change) => document.querySelectorAll(".js-plotly-plot").forEach((where) => Plotly.relayout(where, change));
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
    resize({ autosize: false, width: PAPER });
  });
  addEventListener("afterprint", () => {
    resize({ autosize: true, width: null });
    for (const fold of closed) fold.open = false;
  });

  const script = $("plotly").textContent;
  if (script && !window.DecompressionStream) {
    document.querySelectorAll(".pending").forEach((place) => { place.textContent = "This browser is too old to draw figures."; });
  } else if (script) {
    const [code, numbers] = await Promise.all([inflate("plotly"), inflate("numbers")]);
    buffer = numbers;
    const library = document.createElement("script");
    library.textContent = new TextDecoder().decode(code);
    document.head.append(library);
    const pause = () => new Promise((done) => setTimeout(done));
    if (data.modes) {
      await plain("modes", 0, data.modes.figure);
      const count = data.modes.figure.data.length;
      connect($("table-modes"), place("modes"), (n) => [...Array(count).keys()].map((curveNumber) => ({ curveNumber, pointNumber: n })));
      await pause();
    }
    for (const [number, figure] of (data.steps?.figures || []).entries()) { await plain("steps", number, figure); await pause(); }
    if (data.front) {
      await plain("front", 0, data.front.figure);
      const where = place("front");
      connect($("table-front"), where, (n) => data.front.figure.data.flatMap((trace, curveNumber) => {
        const pointNumber = (trace.customdata || []).indexOf(n);
        return pointNumber < 0 ? [] : [{ curveNumber, pointNumber }];
      }));
      await pause();
    }
    if (data.runs) { await drawRuns(data.runs); await pause(); }
    if (data.monitors?.panels?.length) {
      const [traces, layout] = panels(data.monitors.panels, data.monitors.marks, 190);
      await draw(place("monitors"), traces, layout);
    }
  }
  root.dataset.ready = Math.round(performance.now());
})();
