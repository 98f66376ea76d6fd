/** The frame around all pages: navigation, the live sign, theme, login, messages. */

import { type ReactNode, useEffect, useState } from "react";
import { useGet } from "./data/api.ts";
import { count, duration, minutes, relative, useNow } from "./data/format.ts";
import { live, liveStore } from "./data/live.ts";
import { Link, useAddress } from "./data/router.tsx";
import { logIn, logOut, session } from "./data/session.ts";
import { useStore } from "./data/store.ts";
import { dismiss, toasts } from "./data/toast.ts";
import { Keyboard } from "./keyboard.tsx";
import { openPalette, Palette } from "./palette.tsx";
import { Button, Field } from "./parts/controls.tsx";
import { Notice } from "./parts/page.tsx";
import { Icon, type IconName } from "./parts/status.tsx";
import { nextTheme, theme } from "./data/theme.ts";

/** Pages that begin a group in the navigation. */
const FIRST = ["/dead-letters", "/queues", "/settings"];

export const PAGES: [string, string, IconName][] = [
  ["/", "Overview", "overview"],
  ["/jobs", "Jobs", "jobs"],
  ["/executions", "Executions", "executions"],
  ["/workflows", "Workflows", "workflows"],
  ["/calendar", "Calendar", "calendar"],
  ["/dead-letters", "Dead letters", "dead"],
  ["/logs", "Logs", "terminal"],
  ["/alerts", "Alerts", "bell"],
  ["/queues", "Queues", "queues"],
  ["/workers", "Workers", "workers"],
  ["/events", "Events", "events"],
  ["/settings", "Settings", "settings"],
];

export function Shell({ children }: { children: ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  const { path } = useAddress();
  const mine = useStore(session);
  useEffect(() => setOpen(false), [path]);
  return (
    <div className="shell">
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Sidebar isOpen={isOpen} />
      {isOpen && <button type="button" className="scrim" aria-label="Close the menu" onClick={() => setOpen(false)} />}
      <div className="main">
        <header className="topbar">
          <span className="menu">
            <Button icon="menu" kind="quiet" label="Menu" onClick={() => setOpen(true)} />
          </span>
          <button type="button" className="search-button" onClick={openPalette}>
            <Icon name="search" />
            <span>Search or run a command</span> <kbd>Ctrl K</kbd>
          </button>
          <span className="grow" />
          {mine?.read_only && (
            <span className="chip" title="This server was started with --read-only: it refuses changes">
              Read only
            </span>
          )}
          <LiveSign />
          <ThemeButton />
        </header>
        {children}
      </div>
      <Palette />
      <Keyboard />
      <Toasts />
    </div>
  );
}

function Sidebar({ isOpen }: { isOpen: boolean }) {
  const { path } = useAddress();
  const stats = useGet("/stats", { every: 15_000 });
  const mine = useStore(session);
  const incidents = useGet("/incidents", { query: { open: true, limit: 50 }, every: 15_000 });
  const open = incidents.data?.items.length ?? 0;
  const dead = stats.data?.dead_letters.length ?? 0;
  const at = `/${path.split("/")[1] ?? ""}`;
  return (
    <aside className="sidebar" data-open={isOpen}>
      <Link className="brand" href="/">
        <img src="/bell.svg" alt="" />
        Daybell
      </Link>
      <nav className="nav" aria-label="Pages">
        {PAGES.map(([href, name, icon]) => (
          <Link
            key={href}
            href={href}
            data-first={FIRST.includes(href)}
            aria-current={href === at ? "page" : undefined}
          >
            <Icon name={icon} />
            {name}
            {href === "/dead-letters" && dead > 0 && (
              <span className="badge bad">{count(dead, stats.data?.has_more_dead_letters)}</span>
            )}
            {href === "/alerts" && open > 0 && (
              <span className="badge bad">{count(open, incidents.data?.next_cursor != null)}</span>
            )}
          </Link>
        ))}
      </nav>
      <div className="foot small faint">
        {mine && (
          <div className="row between">
            <span className="cut" title={mine.name ?? "no key needed here"}>
              {mine.tenant} · {mine.role}
            </span>
            {mine.csrf_token && (
              <Button size="small" kind="quiet" onClick={() => void logOut()}>
                Log out
              </Button>
            )}
          </div>
        )}
        <div className="row between">
          <a href="/docs">API</a>
          <span>{mine?.version}</span>
        </div>
      </div>
    </aside>
  );
}

const WORDS = {
  connecting: ["Connecting", "warn"],
  reconnecting: ["Reconnecting", "warn"],
  stale: ["Stale", "bad"],
  login: ["Logged out", "bad"],
} as const;

function LiveSign() {
  const { state, heardAt, frozenAt } = useStore(liveStore);
  const now = useNow();
  const skew = useStore(liveStore).skew;
  if (frozenAt !== null)
    return (
      <button
        type="button"
        className="live warn"
        title="Nothing on this page changes now"
        onClick={() => live.freeze(false)}
      >
        <Icon name="play" /> Frozen {duration(Math.max(0, Math.round((now - skew - frozenAt) / 1000)))}
      </button>
    );
  if (state === "live")
    return (
      <button
        type="button"
        className="live live-state"
        title="Live. Press to freeze the page"
        onClick={() => live.freeze(true)}
      >
        <i /> Live
      </button>
    );
  const [word, tone] = WORDS[state];
  const heard = new Date(heardAt + skew).toISOString();
  return (
    <span className={`live ${tone}`} role="status" title={`The last answer came ${relative(heard, now)}`}>
      <i /> {state === "stale" ? `Stale since ${minutes(heard)}` : word}
    </span>
  );
}

function ThemeButton() {
  const now = useStore(theme);
  const icon = now === "" ? "screen" : now === "dark" ? "moon" : "sun";
  return <Button icon={icon} kind="quiet" label={`Theme: ${now || "system"}`} onClick={nextTheme} />;
}

function Toasts() {
  const all = useStore(toasts);
  return (
    <div className="toasts" aria-live="polite">
      {all.map((one) => (
        <div key={one.id} className="toast">
          <span className={`tone-${one.tone}`}>
            <Icon name={one.tone === "ok" ? "check" : "dead"} />
          </span>
          <span className="grow">{one.text}</span>
          {one.undo && (
            <Button
              size="small"
              onClick={() => {
                one.undo?.();
                dismiss(one.id);
              }}
            >
              Undo
            </Button>
          )}
          <Button size="small" kind="quiet" icon="cross" label="Dismiss" onClick={() => dismiss(one.id)} />
        </div>
      ))}
    </div>
  );
}

/** The page for browsers without a session. */
export function Login() {
  const [key, setKey] = useState("");
  const [wrong, setWrong] = useState("");
  const [isBusy, setBusy] = useState(false);
  const enter = async () => {
    setBusy(true);
    try {
      await logIn(key.trim());
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="page login">
      <form
        className="card"
        onSubmit={(event) => {
          event.preventDefault();
          void enter();
        }}
      >
        <div className="body stack">
          <span className="brand">
            <img src="/bell.svg" alt="" />
            Daybell
          </span>
          <h1>Log in with a key</h1>
          <p className="muted">
            The server keeps a session in a cookie that scripts cannot read. It ends with the key.
          </p>
          <Field
            label="Key"
            hint={
              <>
                A key begins with dbk_. <code>daybell keys create me --role viewer</code> makes one.
              </>
            }
          >
            {(id) => (
              <input
                id={id}
                className="input mono"
                type="password"
                autoComplete="off"
                autoFocus
                required
                value={key}
                onChange={(event) => setKey(event.target.value)}
              />
            )}
          </Field>
          {wrong && <Notice>{wrong}</Notice>}
          <Button type="submit" kind="primary" disabled={isBusy || !key.trim()}>
            Log in
          </Button>
        </div>
      </form>
    </main>
  );
}
