// What a page can do besides being read: it refreshes itself, and a part of a timeline can be chosen.
// Everything here is also there without it.

const SVG = "http://www.w3.org/2000/svg";

/** Replaces the content every few seconds, while somebody sees it and is not in the middle of it. */
function refresh(main) {
  const seconds = Number(main.dataset.refresh);
  if (!(seconds > 0)) return;
  const isBusy = () =>
    document.hidden ||
    main.contains(document.activeElement) ||
    main.querySelector(":hover:is(svg *, button, input)") !== null ||
    !(getSelection()?.isCollapsed ?? true);
  const again = async () => {
    if (!isBusy()) {
      try {
        const answer = await fetch(location.href, { redirect: "manual", credentials: "same-origin" });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const next = page.getElementById("main");
          if (next && !isBusy()) {
            main.replaceChildren(...next.childNodes);
            select(main);
            if (!next.dataset.refresh) return;
          }
        }
      } catch {
        // The receiver is away: it is asked again.
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

const main = document.getElementById("main");
if (main) {
  refresh(main);
  select(main);
}
