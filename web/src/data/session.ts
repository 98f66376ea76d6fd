/** The session of this browser: role, actions, and the token that proves where changes come from. */

import { ApiError, BASE, queries, send } from "./api.ts";
import { liveStore } from "./live.ts";
import { type components } from "./schema.ts";
import { createStore, useStore } from "./store.ts";

export type Session = components["schemas"]["Session"];
export type Action = components["schemas"]["Action"];

export const session = createStore<Session | null>(null);

/** True if this caller may do something; the server checks it again. */
export function useCan() {
  const mine = useStore(session);
  return (action: Action) => mine?.actions.includes(action) ?? false;
}

const RANKS = ["viewer", "operator", "admin", "superadmin"];
export function useIsAtLeast(role: Session["role"]) {
  const mine = useStore(session);
  return mine !== null && RANKS.indexOf(mine.role) >= RANKS.indexOf(role);
}

/** Find out who this is. A login link is used, and taken out of the address. */
export async function begin() {
  const token = /^#login=(\S+)$/.exec(window.location.hash)?.[1];
  if (token) {
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
    try {
      return await logIn(decodeURIComponent(token));
    } catch {
      // It was used before: the cookie of then may still be good.
    }
  }
  await look();
}

async function look() {
  try {
    session.set((await send("GET", `${BASE}/session`)) as Session);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 401) return;
    setTimeout(() => void look(), 2000);
  }
}

export async function logIn(key: string) {
  session.set((await send("POST", `${BASE}/session`, { key })) as Session);
  liveStore.set((now) => ({ ...now, state: "connecting", heardAt: Date.now() }));
  await queries.invalidateQueries();
}

export async function logOut() {
  await send("DELETE", `${BASE}/session`);
  session.set(null);
  queries.clear();
  liveStore.set((now) => ({ ...now, state: "login" }));
}
