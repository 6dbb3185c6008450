// The only script of the dashboard. Pages work without it: it adds live updates, keys, the theme switch and questions.
"use strict";
(() => {
  const root = document.body.dataset.root;
  const main = document.getElementById("main");
  const one = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];

  // Theme: as the system has it, until the reader chooses.
  const store = { get: (key) => { try { return localStorage.getItem(key); } catch { return null; } }, set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* Private windows may have no storage. */ } } };
  const themes = ["system", "light", "dark"];
  const themeButton = one("[data-theme-switch]");
  const showTheme = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    if (themeButton) { themeButton.hidden = false; themeButton.textContent = "Theme: " + theme; }
  };
  let theme = themes.includes(store.get("laneway-theme")) ? store.get("laneway-theme") : "system";
  showTheme(theme);
  themeButton?.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    store.set("laneway-theme", theme);
    showTheme(theme);
  });

  // Questions before changes, and selection of all rows.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = form.dataset.ask ?? event.submitter?.dataset.ask;
    if (question && !confirm(question)) event.preventDefault();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) {
      for (const box of all("input[name=id]", event.target.closest("table"))) box.checked = event.target.checked;
    }
  });

  // Keys.
  let row = null;
  let went = 0;
  const rows = () => all("[data-list] tbody tr", main).filter((tr) => !tr.classList.contains("more"));
  const markRow = (next) => {
    rows().forEach((tr) => tr.classList.toggle("at", tr === next));
    row = next?.dataset.row ?? null;
    next?.scrollIntoView({ block: "nearest" });
  };
  const step = (by) => {
    const list = rows();
    if (!list.length) return;
    const at = list.findIndex((tr) => tr.classList.contains("at"));
    markRow(list[Math.min(list.length - 1, Math.max(0, at < 0 ? 0 : at + by))]);
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && typing) { event.target.blur(); return; }
    if (typing || one("dialog[open]")) return;
    const current = one("tr.at", main);
    if (Date.now() - went < 1500) {
      went = 0;
      const link = one('[data-letter="' + CSS.escape(event.key) + '"]');
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (event.key === "g") went = Date.now();
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "Enter" && current && !event.target.matches("a, button, summary")) one("a", current)?.click();
    else if (event.key === "x" && current) { const box = one("input[name=id]", current); if (box) box.checked = !box.checked; }
    else if (event.key === "/") { const field = one("[data-search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
    else if (event.key === "?") document.getElementById("keys")?.showModal();
  });

  // Live updates: the server says that something has changed, and the page gets its main part again.
  const offline = one("[data-offline]");
  const pulse = one("[data-pulse]");
  const PAUSE = 1000;
  let last = 0, timer = 0, busy = false, stale = false, source = null;
  const show = (answers) => {
    offline.hidden = answers;
    pulse.className = "pulse " + (answers ? "on" : "off");
  };
  const keep = () => ({
    checked: new Set(all("input[name=id]:checked", main).map((box) => box.value)),
    scroll: all(".scroll, .log, .events, pre.data", main).map((box) => [box.scrollLeft, box.scrollTop, box.scrollTop + box.clientHeight >= box.scrollHeight - 4]),
  });
  const restore = (kept) => {
    for (const box of all("input[name=id]", main)) box.checked = kept.checked.has(box.value);
    all(".scroll, .log, .events, pre.data", main).forEach((box, at) => {
      const was = kept.scroll[at];
      if (was) { box.scrollLeft = was[0]; box.scrollTop = box.matches(".log") && was[2] ? box.scrollHeight : was[1]; }
    });
    if (row) markRow(rows().find((tr) => tr.dataset.row === row) ?? null);
  };
  // A reader that fills in a form, selects text or has a button in focus is not disturbed.
  const isUsed = () => (main.contains(document.activeElement) && document.activeElement !== main && document.activeElement.matches("input:not([type=checkbox]), button, select, textarea")) || !getSelection().isCollapsed || main.dataset.still !== undefined;
  const refresh = async () => {
    timer = 0;
    if (busy || document.hidden || isUsed()) { stale = true; if (!document.hidden) later(2 * PAUSE); return; }
    busy = true; stale = false; last = Date.now();
    try {
      const response = await fetch(location.href, { headers: { "x-laneway-fragment": "1" }, cache: "no-store", credentials: "same-origin" });
      if (response.status === 401) { location.reload(); return; }
      show(true);
      if (response.ok) {
        const html = await response.text();
        if (!isUsed()) { const kept = keep(); main.innerHTML = html; restore(kept); }
      }
    } catch { show(false); }
    finally { busy = false; }
    if (stale || one("[data-again]", main)) later(PAUSE);
  };
  const later = (pause = 0) => { if (!timer) timer = setTimeout(refresh, Math.max(pause, PAUSE - (Date.now() - last))); };
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(root + "live");
    source.addEventListener("open", () => { const was = !offline.hidden; show(true); if (was) later(); });
    source.addEventListener("change", () => later());
    source.addEventListener("error", () => {
      show(false);
      // A closed source does not come back by itself.
      if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(async () => { await refresh(); listen(); }, 2000); }
    });
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; } else { listen(); later(); }
  });
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", (event) => { if (event.persisted) { listen(); later(); } });
  const log = one("[data-log]");
  if (log) log.scrollTop = log.scrollHeight;
  // Ages grow although nothing happens.
  setInterval(() => { if (!document.hidden) later(); }, 30000);
  // The answer to a form is shown as it is: fetching the address again would not send the form again.
  if (one(".preview", main)) main.dataset.still = "";
  if (one("[data-again]", main)) later(PAUSE);
  listen();
})();
