/** Short messages about what was done, shown by the shell. */

import { createStore } from "./store.ts";

export interface Toast {
  id: number;
  text: string;
  tone: "ok" | "bad";
  undo?: () => void;
}

export const toasts = createStore<Toast[]>([]);
let last = 0;

export function toast(text: string, tone: Toast["tone"] = "ok", undo?: () => void) {
  const id = ++last;
  toasts.set((all) => [...all.slice(-2), { id, text, tone, undo }]);
  setTimeout(() => dismiss(id), tone === "bad" ? 9000 : 5000);
}

export const dismiss = (id: number) => toasts.set((all) => all.filter((one) => one.id !== id));
