/** Light, dark, or as the system. */

import { createKept } from "./store.ts";

type Theme = "" | "light" | "dark";
export const theme = createKept<Theme>("daybell.theme.v1", "");

export const nextTheme = () => theme.set((now) => (now === "" ? "dark" : now === "dark" ? "light" : ""));

/** `public/theme.js` reads the name before the first paint. */
function apply() {
  const now = theme.get();
  document.documentElement.dataset.theme = now;
  try {
    localStorage.setItem("daybell.theme", now);
  } catch {
    // The choice lasts as long as the page.
  }
}
theme.follow(apply);
apply();
