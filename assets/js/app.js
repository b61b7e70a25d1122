// What the pages do beyond HTML and htmx. Every form works without it.
(() => {
  "use strict";
  const all = (sel, root = document) => root.querySelectorAll(sel);
  const clock = s => Math.floor(s / 60) + ":" + String(s % 60).padStart(2, "0");
  const refresh = () => window.htmx && document.getElementById("bar") &&
    htmx.ajax("GET", "/bar", { target: "#bar", swap: "outerHTML" });

  // Time left: counted from when the element arrived, never from the clock of this machine.
  const ends = new WeakMap();
  const left = el => {
    if (!ends.has(el)) ends.set(el, performance.now() + 1000 * el.dataset.left);
    return Math.max(0, Math.ceil((ends.get(el) - performance.now()) / 1000));
  };
  setInterval(() => {
    for (const el of all("[data-left]")) {
      const s = left(el);
      el.textContent = clock(s);
      if (s === 0 && !el.dataset.over) { el.dataset.over = "1"; setTimeout(refresh, 1500); }
    }
  }, 500);

  // While a revision waits for its confirm: ask the box every 2 s, each time ready for a new connection.
  let asking = false;
  setInterval(async () => {
    const el = document.querySelector("[data-confirm]");
    if (!el || asking) return;
    asking = true;
    try {
      const body = new URLSearchParams({ revision: el.dataset.confirm, token: el.dataset.token, poll: "1" });
      const r = await fetch("/confirm", { method: "POST", body, cache: "no-store", signal: AbortSignal.timeout(5000) });
      online(true);
      if (r.ok && (await r.json()).state !== "testing") refresh();
    } catch { online(false); } finally { asking = false; }
  }, 2000);

  // Server gone: say so, and for how long; htmx errors and the poll both tell.
  let since = 0, ticker = 0;
  function online(ok) {
    let bar = document.querySelector(".offline");
    if (ok) { bar?.remove(); clearInterval(ticker); since = ticker = 0; return; }
    if (since) return;
    since = performance.now();
    ticker = setInterval(() => {
      if (!bar?.isConnected) {
        bar = document.createElement("div");
        bar.className = "offline";
        bar.setAttribute("role", "alert");
        document.body.append(bar);
      }
      bar.textContent = `No contact for ${Math.round((performance.now() - since) / 1000)} s – retrying`;
    }, 1000);
  }
  document.addEventListener("htmx:sse:error", () => online(false));
  document.addEventListener("htmx:sse:after:connection", () => online(true));
  document.addEventListener("htmx:after:request", () => online(true));

  // What arrives, now or by htmx.
  function arrive(root) {
    for (const b of all("[data-show]", root)) b.hidden = false;
    for (const t of all(".toast", root)) setTimeout(() => t.remove(), 10000);
    const focus = root.querySelector("[data-focus]");
    if (focus) { focus.removeAttribute("data-focus"); focus.focus(); }
  }
  document.addEventListener("htmx:after:swap", () => arrive(document));
  arrive(document);

  // The one-time confirm token comes in the fragment of the link, so that no log holds it.
  const token = /^#c=([\w-]+)$/.exec(location.hash);
  if (token) {
    for (const i of all("input[name=token]")) i.value = token[1];
    history.replaceState(null, "", location.pathname + location.search);
  }

  document.addEventListener("click", e => {
    const show = e.target.closest("[data-show]");
    if (show) {
      const input = document.getElementById(show.dataset.show);
      const on = input.type === "password";
      input.type = on ? "text" : "password";
      show.setAttribute("aria-pressed", on);
    }
    // Dialogs open by command/commandfor; this is for browsers that do not know it yet.
    const open = e.target.closest("[command=show-modal]");
    if (open && !("commandForElement" in open)) document.getElementById(open.getAttribute("commandfor"))?.showModal();
    if (e.target instanceof HTMLDialogElement && e.target.open) {
      const b = e.target.getBoundingClientRect();
      if (e.clientX < b.left || e.clientX > b.right || e.clientY < b.top || e.clientY > b.bottom) e.target.close();
    }
  });

  // A form is sent once.
  document.addEventListener("submit", e => {
    const f = e.target;
    if (e.defaultPrevented || e.submitter?.formMethod === "dialog") return;
    if (f.dataset.sent) { e.preventDefault(); return; }
    f.dataset.sent = "1";
    setTimeout(() => delete f.dataset.sent, 4000);
  });
  addEventListener("pageshow", () => { for (const f of all("form[data-sent]")) delete f.dataset.sent; });

  document.addEventListener("keydown", e => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, [contenteditable]")) return;
    const search = document.querySelector("[data-search], input[type=search]");
    if (search) { e.preventDefault(); search.focus(); search.select(); }
  });
})();
