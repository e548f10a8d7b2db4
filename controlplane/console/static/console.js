// The live parts of the console's pages. Everything works without it except live figures,
// charts and the choice of a theme.

const page = document.body.dataset.page;
const link = document.getElementById("link");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const say = (words) => { if (link && link.textContent !== words) link.textContent = words; };

// The theme: the system's, until a person chooses. The server reads the cookie, so that
// no page flashes in the wrong theme.
const toggle = document.getElementById("theme");
const dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
toggle.hidden = false;
toggle.addEventListener("click", () => {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.cookie = `weir_theme=${next}; path=/console/; max-age=31536000; samesite=strict`;
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());

// Figures, as the server writes them.
const count = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const rate = (v) => (v == null ? "–" : v >= 99.95 ? count(v) : v === 0 ? "0" : v.toFixed(1));

// refresh fetches the page again and swaps the parts that are marked as live, except parts in
// which a person is at work.
let refreshing = false;
async function refresh() {
  if (refreshing) return;
  refreshing = true;
  let fine = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const with_ = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
      const busy = part.contains(document.activeElement) || part.querySelector("details[open]");
      if (with_ && !busy && part.innerHTML !== with_.innerHTML) {
        part.className = with_.className;
        part.replaceChildren(...with_.childNodes);
      }
    }
    fine = true;
  } catch {
    say("connection lost: these figures are old");
  } finally {
    refreshing = false;
  }
  return fine;
}

// poll refreshes a page without a stream, while it is visible.
function poll(every) {
  say("live");
  setInterval(async () => { if (!document.hidden && await refresh()) say("live"); }, every);
}

// watch opens the page's stream while the page is visible, because a browser has only a
// few connections for all pages of a server. The stream connects again by itself after a break.
function watch(topic, handlers) {
  let source = null;
  const open = () => {
    source = new EventSource(`/console/events?topic=${topic}`);
    source.onopen = () => say("live");
    source.onerror = () => say(source?.readyState === EventSource.CLOSED ? "not live: load the page again" : "connecting…");
    for (const [event, handle] of Object.entries(handlers)) {
      source.addEventListener(event, (e) => handle(JSON.parse(e.data)));
    }
  };
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => {
    close();
    if (document.hidden) return;
    open();
    refresh();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => { if (!source) open(); });
  open();
}

// Charts.
const keep = 450;
const gapAfter = 6000; // milliseconds between two points, as the server has it
const points = []; // {at, regions}
const charts = [];
let redrawing = () => {};
function redraw() { redrawing(); }

// series is a chart's data. Its lines have a gap where nothing was measured or a rate is unknown.
function series(name) {
  const x = [], allowed = [], denied = [], shadowed = [];
  for (const p of points) {
    let r = { allowed: null, denied: null, shadowed: null };
    for (const [region, v] of Object.entries(p.regions ?? {})) {
      if ((name && region !== name) || !v.known) continue;
      if (r.allowed === null) r = { allowed: 0, denied: 0, shadowed: 0 };
      r.allowed += v.allowed; r.denied += v.denied; r.shadowed += v.shadowed;
    }
    x.push(p.at / 1000); allowed.push(r.allowed); denied.push(r.denied); shadowed.push(r.shadowed);
  }
  return [x, allowed, denied, shadowed];
}

const line = (label, colour, fill) => ({ label, stroke: css(colour), width: 2, points: { show: false }, fill: fill ? css(colour) + "22" : undefined, value: (_, v) => (v == null ? "–" : rate(v)) });

// Only the page with charts loads the charts' library. Its address has our version, so that
// browsers keep it.
let uPlot;
const library = async () => { uPlot ??= (await import(`./uplot/uPlot.esm.js${new URL(import.meta.url).search}`)).default; };

function draw(into, name, big) {
  into.replaceChildren();
  const axis = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "12px system-ui" };
  const chart = new uPlot({
    width: into.clientWidth, height: big ? 200 : 40,
    tzDate: (ts) => uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC"),
    cursor: { show: big, drag: { x: false, y: false } }, legend: { show: big, live: big },
    padding: big ? undefined : [2, 0, 2, 0],
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
    axes: big ? [{ ...axis, values: "{HH}:{mm}:{ss}", space: 80, incrs: [1, 5, 10, 15, 30, 60, 300] }, { ...axis, size: (_, words) => 16 + 8 * Math.max(3, ...(words ?? []).map((w) => w.length)), values: (_, vs) => vs.map(rate) }] : [{ show: false }, { show: false }],
    series: [{ label: "time", value: (_, v) => (v == null ? "–" : new Date(v * 1e3).toISOString().slice(11, 19)) }, line("allowed", "--allowed", true), line("denied", "--denied"), line("shadowed", "--shadowed")],
  }, series(name), into);
  charts.push({ chart, into, name, big });
}

function drawAll() {
  for (const { chart } of charts.splice(0)) chart.destroy();
  if (points.length < 2 || !document.getElementById("chart")) return;
  draw(document.getElementById("chart"), "", true);
  for (const into of document.querySelectorAll("[data-spark]")) draw(into, into.dataset.spark, false);
}

async function fleet() {
  if (page === "fleet") await library();
  if (!document.getElementById("chart") && page === "fleet") { setInterval(refreshOrReload, 3000); }
  redrawing = drawAll;
  let revision = null, refreshed = Date.now();
  watch("fleet", {
    history: (all) => { points.splice(0, points.length, ...(all ?? [])); drawAll(); },
    fleet: (now) => {
      const put = (key, v) => {
        for (const e of document.querySelectorAll(`[data-rate="${CSS.escape(key)}"]`)) {
          const text = rate(v);
          if (e.textContent !== text) e.textContent = text;
        }
      };
      for (const k of ["allowed", "denied", "shadowed", "degraded"]) {
        put(k, now.total.known ? now.total[k] : null);
        for (const [name, r] of Object.entries(now.regions)) put(`${name}.${k}`, r.known ? r[k] : null);
      }
      if (!now.problem && (!points.length || points.at(-1).at < now.at)) {
        if (points.length && now.at - points.at(-1).at >= gapAfter) points.push({ at: points.at(-1).at + 2000, regions: null });
        points.push({ at: now.at, regions: now.regions });
        while (points.length > keep) points.shift();
        if (charts.length) for (const c of charts) c.chart.setData(series(c.name));
        else drawAll();
      }
      say(now.problem ? "these figures are old" : "live");
      if (now.revision !== revision || Date.now() - refreshed > 8000) {
        if (revision !== null) { refreshed = Date.now(); refresh(); }
        revision = now.revision;
      }
    },
  });
  let timer;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => { for (const c of charts) c.chart.setSize({ width: c.into.clientWidth, height: c.big ? 200 : 40 }); }, 100); });
}

// An empty fleet has no charts to fill: the first node brings a page of another form.
async function refreshOrReload() {
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.ok && (await answer.text()).includes('id="chart"')) location.reload();
}

// While a person types, the rollout's form marks and lists the fields that differ from the tuning in force.
function form() {
  const fields = [...document.querySelectorAll("[data-default]")];
  const line = (text) => Object.assign(document.createElement("li"), { textContent: text });
  for (const input of fields) {
    input.addEventListener("input", () => {
      input.closest("label").classList.toggle("changed", input.value !== input.dataset.default);
      const lines = fields.filter((f) => f.value !== f.dataset.default).map((f) => line(`${f.dataset.label}: ${f.dataset.default} → ${f.value}`));
      document.querySelector("[data-diff]").replaceChildren(...(lines.length ? lines : [line("Nothing yet: all of it is in force.")]));
    });
  }
}

const changed = { changed: refresh, watching: () => {} };
switch (page) {
  case "fleet": case "region": fleet(); break;
  case "rollout": {
    watch(`rollout&id=${encodeURIComponent(decodeURIComponent(location.pathname.split("/").pop()))}`, changed);
    setInterval(refresh, 5000); // the rest of a phase
    break;
  }
  case "rollouts": watch("rollouts", changed); break;
  case "jobs": watch("jobs", changed); break;
  case "tokens": watch(`tokens&${location.search.slice(1)}`, changed); break;
  case "keys":
    if (new URLSearchParams(location.search).get("identifier")) {
      watch(`key&${location.search.slice(1)}`, changed);
      setInterval(refresh, 5000); // the window slides on
    } else say("not live: load the page again for newer figures");
    break;
  case "health":
    if (location.search) say("not live: checks of this moment");
    else watch("health", changed);
    break;
  case "namespace": case "usage":
    if (new URLSearchParams(location.search).get("usage") === "live") poll(15000); // as often as nodes report usage
    else say("not live: load the page again for newer figures");
    break;
  case "rollout-new": form(); say("not live: a form"); break;
  case "rollout-limits": say("not live: a form"); break;
  default: say("not live: load the page again for newer figures");
}
