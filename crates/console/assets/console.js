// What a page can do besides being read: it refreshes itself, times are told in the reader's own zone
// as well, and "/" leads to the search. A page is complete without this script.

/** Replaces the content every few seconds, unless somebody is in the middle of it. */
async function refresh(main) {
  const isBusy = document.hidden || main.contains(document.activeElement)
    || main.querySelector(":hover:is(svg *, a)") || !getSelection().isCollapsed;
  if (isBusy) return;
  const answer = await fetch(location.href, { redirect: "manual" });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  main.replaceChildren(...page.getElementById("main").childNodes);
  local(main);
}

/** Adds the reader's own time to the title of each time. */
function local(main) {
  for (const it of main.querySelectorAll("time")) {
    it.title += `\nlocal: ${new Date(it.dateTime).toLocaleString([], { timeZoneName: "short" })}`;
  }
}

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("form[role=search] input");
  if (!field) return;
  event.preventDefault();
  field.focus();
});

const main = document.getElementById("main");
local(main);
const seconds = Number(main.dataset.refresh ?? 0);
// A receiver that does not answer is asked again.
if (seconds > 0) setInterval(() => refresh(main).catch(() => {}), seconds * 1000);
