/** Addresses: the path names the page, the query holds its filters. */

import type { AnchorHTMLAttributes, MouseEvent } from "react";
import { createStore, useStore } from "./store.ts";

const read = () => window.location.pathname + window.location.search;
const place = createStore(read());
window.addEventListener("popstate", () => place.set(read()));

export function navigate(to: string, { replace = false } = {}) {
  if (to === read()) return;
  if (replace) window.history.replaceState(null, "", to);
  else window.history.pushState(null, "", to);
  place.set(read());
}

export function useAddress() {
  const text = useStore(place);
  const [path = "/", search = ""] = text.split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path, parts, query: new URLSearchParams(search) };
}

function decode(part: string) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A filter that is kept in the address. */
export function useFilter(name: string, initial = "") {
  const { query } = useAddress();
  const set = (value: string) => setFilters({ [name]: value === initial ? "" : value });
  return [query.get(name) ?? initial, set] as const;
}

export function setFilters(some: Record<string, string>) {
  const url = new URL(window.location.href);
  for (const [name, value] of Object.entries(some)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  navigate(url.pathname + url.search, { replace: true });
}

/** An address of the dashboard. */
export function to(path: string, query: Record<string, string | undefined> = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return path + (text && `?${text}`);
}

/** The list of executions that a query finds. */
export function searchPath(words: Record<string, string | undefined>) {
  const quoted = (value: string) => (/[\s"]/.test(value) ? JSON.stringify(value) : value);
  const q = Object.entries(words).flatMap(([name, value]) => (value ? [`${name}:${quoted(value)}`] : []));
  return to("/executions", { q: q.join(" ") });
}

export const jobPath = (name: string) => `/jobs/${encodeURIComponent(name)}`;
export const executionPath = (id: string) => `/executions/${id}`;

export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement>) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (!href?.startsWith("/") || !isPlain || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    navigate(href);
  };
  return <a href={href} onClick={follow} {...rest} />;
}
