"use strict";
// Opens what a link leads to, and filters the table. Without this script everything is there all the same.
function reveal() {
  const name = decodeURIComponent(location.hash.slice(1));
  const found = name && document.getElementById(name);
  if (!found) return;
  for (let part = found; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  found.scrollIntoView();
  const summary = found.querySelector(":scope > summary");
  (summary || found).focus({ preventScroll: true });
}
addEventListener("hashchange", reveal);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.getAttribute("href") === location.hash) reveal();
});
reveal();

const form = document.querySelector(".filter");
if (form) {
  const rows = [...document.querySelectorAll(".modules tbody tr")];
  const field = form.querySelector("input");
  const output = form.querySelector("output");
  form.hidden = rows.length < 6;
  form.addEventListener("submit", (event) => event.preventDefault());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = words.every((word) => row.dataset.name.toLowerCase().includes(word));
      row.hidden = document.getElementById(row.dataset.details).hidden = !fits;
      shown += fits;
    }
    output.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}
