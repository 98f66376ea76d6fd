/** Values outside of components that components follow. */

import { useSyncExternalStore } from "react";

export interface Store<T> {
  get: () => T;
  set: (next: T | ((now: T) => T)) => void;
  follow: (listener: () => void) => () => void;
}

export function createStore<T>(value: T): Store<T> {
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set: (next) => {
      const made = typeof next === "function" ? (next as (now: T) => T)(value) : next;
      if (Object.is(made, value)) return;
      value = made;
      for (const one of listeners) one();
    },
    follow: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export const useStore = <T>(store: Store<T>): T => useSyncExternalStore(store.follow, store.get);

/** A store that this browser keeps. */
export function createKept<T>(name: string, initial: T): Store<T> {
  const store = createStore<T>(read(name, initial));
  return {
    ...store,
    set: (next) => {
      store.set(next);
      try {
        localStorage.setItem(name, JSON.stringify(store.get()));
      } catch {
        // Without storage it lasts as long as the page.
      }
    },
  };
}

function read<T>(name: string, initial: T): T {
  try {
    const text = localStorage.getItem(name);
    return text === null ? initial : (JSON.parse(text) as T);
  } catch {
    return initial;
  }
}
