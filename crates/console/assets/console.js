// What a page can do besides being read: it refreshes itself, a part of a timeline can be chosen, ids
// are copied, times are told in the reader's own zone as well, and "/" leads to the search.
// A page is complete without it.

const SVG = "http://www.w3.org/2000/svg";

/** The time of day here. */
const clock = (at) => at.toLocaleTimeString([], { hour12: false });

/** Replaces the content every few seconds, while somebody sees it and is not in the middle of it. */
function refresh(main) {
  const seconds = Number(main.dataset.refresh);
  if (!(seconds > 0)) return;
  const note = document.createElement("p");
  note.className = "updated";
  note.dataset.test = "updated";
  main.after(note);
  let updated = new Date();
  const tell = (what) => {
    note.textContent = `${what} Updated at ${clock(updated)}.`;
  };
  tell(`Refreshes every ${seconds} s.`);
  const isBusy = () =>
    document.hidden ||
    main.contains(document.activeElement) ||
    main.querySelector(":hover:is(svg *, button, input)") !== null ||
    !(getSelection()?.isCollapsed ?? true);
  const again = async () => {
    if (isBusy()) {
      tell("Does not refresh while you are in the middle of it.");
    } else {
      try {
        const answer = await fetch(location.href, { redirect: "manual", credentials: "same-origin" });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const next = page.getElementById("main");
          if (next && !isBusy()) {
            main.replaceChildren(...next.childNodes);
            enhance(main);
            updated = new Date();
            tell(`Refreshes every ${seconds} s.`);
            if (!next.dataset.refresh) {
              tell("");
              return;
            }
          }
        } else {
          tell(`Cannot refresh: the receiver answers ${answer.status || "with another page"}.`);
        }
      } catch {
        // The receiver is away: it is asked again.
        tell("Cannot refresh: the receiver does not answer.");
      }
    }
    setTimeout(again, seconds * 1000);
  };
  setTimeout(again, seconds * 1000);
}

/** Dragging over a timeline opens the part of the time that was dragged over. */
function select(root) {
  const svg = root.querySelector("svg.timeline");
  if (!svg) return;
  const from = Number(svg.dataset.from);
  const to = Number(svg.dataset.to);
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  let begin = null;
  let mark = null;
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") begin = place(event);
  });
  svg.addEventListener("pointermove", (event) => {
    if (begin === null) return;
    const end = place(event);
    if (!mark && Math.abs(end - begin) > 0.01) {
      mark = svg.appendChild(document.createElementNS(SVG, "rect"));
      mark.setAttribute("class", "selection");
      mark.setAttribute("y", "38");
      mark.setAttribute("height", "138");
      svg.setPointerCapture(event.pointerId);
    }
    mark?.setAttribute("x", `${Math.min(begin, end) * 100}%`);
    mark?.setAttribute("width", `${Math.abs(end - begin) * 100}%`);
  });
  const stop = (event) => {
    const [one, other] = [begin, place(event)];
    const isChosen = mark !== null && event.type === "pointerup";
    mark?.remove();
    begin = mark = null;
    if (!isChosen) return;
    const at = (part) => Math.round(from + part * (to - from));
    const address = new URL(location.href);
    address.searchParams.set("from", at(Math.min(one, other)));
    address.searchParams.set("to", at(Math.max(one, other)));
    address.searchParams.delete("cursor");
    address.hash = "";
    location.assign(address);
  };
  svg.addEventListener("pointerup", stop);
  svg.addEventListener("pointercancel", stop);
}

/** A button behind each id that people pass on. */
function copy(root) {
  if (!navigator.clipboard) return;
  for (const it of root.querySelectorAll("[data-copy]")) {
    const text = it.querySelector(".id")?.textContent ?? it.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the id");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
    });
    if (it.localName === "dd") it.append(" ", button);
    else it.after(button);
  }
}

/** Times are in UTC. Where the reader's zone is another one, its time stands beside them. */
function local(root) {
  if (new Date().getTimezoneOffset() === 0) return;
  for (const it of root.querySelectorAll("time[datetime]")) {
    const at = new Date(it.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    it.title += `\nlocal: ${at.toLocaleString([], { hour12: false, timeZoneName: "short" })}`;
    if (!it.closest(".facts")) continue;
    const beside = document.createElement("span");
    beside.className = "local";
    const isSameDay = it.dateTime.slice(8, 10) === String(at.getDate()).padStart(2, "0");
    beside.textContent = ` (${isSameDay ? "" : `${at.toLocaleDateString()} `}${clock(at)} local)`;
    it.after(beside);
  }
}

function enhance(root) {
  select(root);
  copy(root);
  local(root);
}

/** "/" leads to the first field of the search. */
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
  const field = document.querySelector("form[role=search] input:not([type=hidden])");
  if (!field) return;
  event.preventDefault();
  field.focus();
});

const main = document.getElementById("main");
if (main) {
  refresh(main);
  enhance(main);
}
