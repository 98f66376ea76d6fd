/** The keyboard: keys that work on every page, and the list of them. */

import { useEffect } from "react";
import { navigate } from "./data/router.tsx";
import { helpStore, togglePalette } from "./palette.tsx";
import { Dialog } from "./parts/dialog.tsx";
import { useStore } from "./data/store.ts";

/** The second key after `g`. */
export const GO: Record<string, string> = {
  o: "/",
  j: "/jobs",
  e: "/executions",
  w: "/workflows",
  c: "/calendar",
  d: "/dead-letters",
  l: "/logs",
  a: "/alerts",
  q: "/queues",
  k: "/workers",
  v: "/events",
  s: "/settings",
};

const KEYS: [string, string][] = [
  ["Ctrl K", "search, and run a command"],
  ["/", "go to the filter of the page"],
  ["j k", "go through the list; arrows, Home and End do so as well"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["Esc", "close what is open"],
  ["?", "show these keys"],
];

export function Keys() {
  const pages = Object.entries(GO).map(([key, path]): [string, string] => [`g ${key}`, path.slice(1) || "overview"]);
  return (
    <div className="grid two">
      {[KEYS, pages].map((keys) => (
        <dl key={keys[0]?.[0]} className="keys" data-many={keys.length > 8}>
          {keys.map(([key, text]) => (
            <div key={key}>
              <dt>
                {key.split(" ").map((one) => (
                  <kbd key={one}>{one}</kbd>
                ))}
              </dt>
              <dd>{text.replace("-", " ")}</dd>
            </div>
          ))}
        </dl>
      ))}
    </div>
  );
}

const IN_LIST = new Set(["j", "k", "x", "Enter"]);

/** Go to the first list of the page, and press the key there. */
function pressInList(key: string) {
  const list = document.querySelector<HTMLElement>("main [role=table]");
  list?.focus();
  list?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  return list !== null;
}

export function Keyboard() {
  const isHelp = useStore(helpStore);
  const setHelp = helpStore.set;
  useEffect(() => {
    let wasG = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        togglePalette();
        return;
      }
      const isWriting = target.closest?.("input, textarea, select, dialog") !== null;
      if (event.defaultPrevented || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = wasG ? GO[event.key] : undefined;
      wasG = event.key === "g";
      const isFree = target === document.body || target.id === "main";
      if (page) navigate(page);
      else if (event.key === "?") setHelp(true);
      else if (event.key === "/") document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
      else if (!isFree || !IN_LIST.has(event.key) || !pressInList(event.key)) return;
      event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  return isHelp ? (
    <Dialog title="Keyboard" wide onClose={() => setHelp(false)}>
      <Keys />
    </Dialog>
  ) : null;
}
