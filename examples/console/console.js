// SPDX-License-Identifier: PostgreSQL
// Follows and drives the pages of sas.console_page: what has changed is put in place without a reload, and
// every link and form is reached by keys. Without it the pages work all the same.
"use strict";
const root = new URL(document.currentScript.src).pathname.replace(/\/console\.js$/, "");
let due = 0;

// Not while somebody is about to do something: a form that is open or has the focus stays as it is.
const busy = () => document.hidden || document.querySelector("details.act[open]") || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);

async function renew() {
  due = 0;
  if (busy()) { due = setTimeout(renew, 2000); return; }
  const answer = await fetch(location.href, { credentials: "same-origin", headers: { "X-Follow": "1" } });
  if (answer.redirected || !answer.ok) { location.reload(); return; }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = [...document.querySelectorAll("section details[open] > summary > b")].map(b => b.textContent);
  for (const old of document.querySelectorAll("header, .tiles, section[id]:not(#search)")) {
    const now = old.id ? fresh.getElementById(old.id) : fresh.querySelector(old.tagName === "HEADER" ? "header" : ".tiles");
    if (now) old.replaceWith(document.importNode(now, true));
  }
  for (const b of document.querySelectorAll("section details > summary > b"))
    if (open.includes(b.textContent)) b.closest("details").open = true;
  document.title = fresh.title;
}

// A second after the news: what changed meanwhile is told only twice a second.
const news = new EventSource(root + "/events");
news.onmessage = () => { if (!due) due = setTimeout(renew, 1000); };

document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (e.key === "Escape") {
    document.activeElement.blur();
    for (const d of document.querySelectorAll("details.act[open]")) d.open = false;
  } else if (!typing && (e.key === "j" || e.key === "k")) {
    const all = [...document.querySelectorAll("td a, summary")];
    const at = all.indexOf(document.activeElement) + (e.key === "j" ? 1 : -1);
    if (all.length) all[Math.max(0, Math.min(all.length - 1, at))].focus();
  } else if (!typing && /^[a-z\/]$/.test(e.key)) {
    const at = document.querySelector(`[accesskey="${e.key}"]`);
    if (!at) return;
    e.preventDefault();
    if (at.tagName === "A") at.click(); else at.focus();
  }
});
