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
      answered(r.status);
      if (r.ok && (await r.json()).state !== "testing") refresh();
    } catch { online(false); } finally { asking = false; }
  }, 2000);

  // Server gone, or signed out: say so above the page and touch nothing in it,
  // so that what was typed is still there afterwards.
  let since = 0, ticker = 0;
  function notice() {
    let bar = document.querySelector(".offline");
    if (!bar) {
      bar = document.createElement("div");
      bar.className = "offline";
      bar.setAttribute("role", "alert");
      document.body.append(bar);
    }
    return bar;
  }
  function online(ok) {
    clearInterval(ticker);
    if (ok) { document.querySelector(".offline")?.remove(); since = 0; return; }
    since ||= performance.now();
    ticker = setInterval(() => {
      notice().textContent = `No contact for ${Math.round((performance.now() - since) / 1000)} s – retrying`;
    }, 1000);
  }
  function signedOut() {
    online(true);
    const link = document.createElement("a");
    Object.assign(link, { href: "/login", target: "_blank", rel: "noopener", textContent: "Sign in" });
    notice().replaceChildren("You are signed out. What is on this page is still here: ", link, " and go on.");
  }
  const answered = status => status === 401 ? signedOut() : online(true);
  // htmx may have looked at the page before its extension for streams was there: connect when both are.
  setTimeout(() => {
    const live = document.getElementById("live");
    if (!live || !window.htmx) return;
    live.setAttribute("hx-sse:connect", live.dataset.connect);
    htmx.process(live);
  });
  document.addEventListener("htmx:sse:error", e => e.detail.status ? answered(e.detail.status) : online(false));
  document.addEventListener("htmx:sse:after:connection", () => online(true));
  document.addEventListener("htmx:after:request", e => answered(e.detail.ctx?.response?.status));
  document.addEventListener("htmx:error", e => e.detail.ctx?.response || online(false));

  // What arrives, now or by htmx.
  function arrive(root) {
    root.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    for (const b of all("[data-show]", root)) b.hidden = false;
    for (const t of all(".toast", root)) setTimeout(function over() {
      if (t.matches(":hover, :focus-within")) setTimeout(over, 2000);
      else t.remove();
    }, 10000);
    for (const i of all("[data-zone]", root)) if (i.value === "UTC") i.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
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
    // Dialogs open by command/commandfor; this is for browsers that do not know it yet,
    // and for buttons that lead to the question on a page of its own without script.
    const open = e.target.closest("[command=show-modal]");
    if (open) {
      e.preventDefault();
      document.getElementById(open.getAttribute("commandfor")).showModal();
    }
    if (e.target instanceof HTMLDialogElement && e.target.open) {
      const b = e.target.getBoundingClientRect();
      if (e.clientX < b.left || e.clientX > b.right || e.clientY < b.top || e.clientY > b.bottom) e.target.close();
    }
  });

  // The menu of a rule's row: one for the page, filled in for the row that was asked. Without script the link opens it.
  document.addEventListener("click", e => {
    const more = e.target.closest(".more"), menu = document.getElementById("row-menu");
    if (!more || !menu?.showPopover || e.ctrlKey || e.metaKey || e.button) return;
    e.preventDefault();
    const row = more.closest("tr"), [, id, hash] = row.querySelector(".switch").value.split(":");
    const list = [...all("tr[id^=r-]:not(.gone)", more.closest("[data-list]"))], at = list.indexOf(row);
    const past = { up: list[at - 1], down: list[at + 1], top: at > 0 && row, end: at < list.length - 1 && row };
    for (const b of all("[data-verb]", menu)) {
      const verb = b.dataset.verb, to = past[verb];
      b.value = [verb, id, hash].concat(to && to !== row ? to.id.slice(2) : []).join(":");
      b.disabled = verb in past && !to;
      if (verb === "delete") b.hidden = row.classList.contains("linked");
    }
    for (const a of all("[data-link]", menu)) a.href = a.dataset.link + id;
    menu.hidden = false;
    menu.showPopover();
    const r = more.getBoundingClientRect(), m = menu.getBoundingClientRect();
    menu.style.left = Math.max(8, r.right - m.width) + "px";
    menu.style.top = Math.max(8, Math.min(r.bottom + 4, innerHeight - m.height - 8)) + "px";
    menu.querySelector("a, button").focus();
  });
  document.addEventListener("keydown", e => {
    const menu = e.target.closest?.("#row-menu");
    if (!menu || !["ArrowDown", "ArrowUp"].includes(e.key)) return;
    e.preventDefault();
    const items = [...all("a, button:enabled", menu)].filter(i => !i.hidden), at = items.indexOf(document.activeElement);
    items.at((at + (e.key === "ArrowDown" ? 1 : -1)) % items.length).focus();
  });

  // What refetches itself moves no row that is in use: it is told so, and answers with the rest.
  document.addEventListener("htmx:config:request", e => {
    if (e.target.matches("[data-hold]") && document.querySelector("dialog[open], tr:hover, tr:focus-within, td :checked")) e.detail.ctx.request.body.set("hold", "1");
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
    // A key that is held down presses a button once.
    if (e.repeat && e.target.matches("button")) e.preventDefault();
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, [contenteditable]")) return;
    const search = document.querySelector("[data-search]") || document.querySelector("[type=search]");
    if (search) { e.preventDefault(); search.focus(); search.select(); }
  });
})();
