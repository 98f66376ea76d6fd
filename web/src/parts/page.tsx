/** The frame of a page, its cards, and what stands in place of missing data. */

import { type ReactNode, useEffect } from "react";
import { ApiError } from "../data/api.ts";
import { Link } from "../data/router.tsx";
import { toast } from "../data/toast.ts";
import { Button, Command } from "./controls.tsx";
import { Icon, type IconName, type Tone } from "./status.tsx";

let shown = window.location.pathname;

/** A row that was opened is gone: the keyboard goes on in the new page. */
function focusIfLost() {
  const isLost = document.activeElement === null || document.activeElement === document.body;
  if (isLost && shown !== window.location.pathname) document.getElementById("main")?.focus({ preventScroll: true });
  shown = window.location.pathname;
}

export function Page({
  title,
  crumbs,
  actions,
  cli,
  children,
}: {
  title: ReactNode;
  crumbs?: [string, string][];
  actions?: ReactNode;
  cli?: string;
  children: ReactNode;
}) {
  useEffect(focusIfLost, []);
  useEffect(() => {
    document.title = typeof title === "string" ? `${title} · Daybell` : "Daybell";
  });
  return (
    <main className="page" id="main" tabIndex={-1}>
      <div className="page-head">
        <div className="grow">
          {crumbs && (
            <nav className="crumbs" aria-label="Breadcrumb">
              {crumbs.map(([text, href]) => (
                <Link key={href} href={href}>
                  {text}
                </Link>
              ))}
            </nav>
          )}
          {typeof title === "string" ? <h1 className="cut">{title}</h1> : title}
        </div>
        <div className="actions">
          {cli && <CopyCommand text={cli} />}
          {actions}
        </div>
      </div>
      {children}
    </main>
  );
}

function CopyCommand({ text }: { text: string }) {
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => toast(`Copied: ${text}`),
      () => toast(text),
    );
  return (
    <span className="copy-command">
      <Button icon="terminal" kind="quiet" label={`Copy the command: ${text}`} onClick={() => void copy()} />
    </span>
  );
}

export function Card({
  title,
  actions,
  flush,
  steady,
  children,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  flush?: boolean;
  steady?: boolean;
  children: ReactNode;
}) {
  return (
    <section className={`card ${flush ? "flush" : ""} ${steady ? "steady" : ""}`}>
      {title && (
        <header>
          <h2>{title}</h2>
          {actions}
        </header>
      )}
      <div className="body">{children}</div>
    </section>
  );
}

/** A card with a short list, a link to all of it, and what stands in its place. */
export function ListCard({
  title,
  all,
  isPending,
  empty,
  steady,
  children,
}: {
  title: string;
  all: [string, string];
  /** As high without rows as with some: they come and go. */
  steady?: boolean;
  isPending?: boolean;
  empty: ReactNode;
  children: ReactNode[];
}) {
  return (
    <Card
      title={title}
      flush
      steady={steady}
      actions={
        <Link className="small muted" href={all[1]}>
          {all[0]}
        </Link>
      }
    >
      {isPending ? (
        <div className="body">
          <Skeleton />
        </div>
      ) : children.some((one) => (Array.isArray(one) ? one.length > 0 : Boolean(one))) ? (
        <ul className="list">{children}</ul>
      ) : (
        empty
      )}
    </Card>
  );
}

export function Fact({ name, title, children }: { name: string; title?: string; children: ReactNode }) {
  return (
    <div className="fact" title={title}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Tabs({ tabs, at }: { tabs: [string, string, string?][]; at: string }) {
  return (
    <nav className="tabs" aria-label="Sections">
      {tabs.map(([name, href, badge]) => (
        <Link key={href} href={href} aria-current={name === at ? "page" : undefined}>
          {name}
          {badge && <span className="badge">{badge}</span>}
        </Link>
      ))}
    </nav>
  );
}

export function Empty({
  icon,
  title,
  children,
  command,
}: {
  icon: IconName;
  title: string;
  children?: ReactNode;
  command?: string;
}) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <b>{title}</b>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
    </div>
  );
}

export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div className="stack" aria-busy="true" aria-label="Loading">
      {Array.from({ length: lines }, (_, at) => (
        <div key={at} className="skeleton" style={{ width: `${90 - ((at * 23) % 45)}%` }} />
      ))}
    </div>
  );
}

export function Notice({ tone = "bad", children }: { tone?: Tone; children: ReactNode }) {
  return (
    <div className={`notice tone-${tone}`} role={tone === "bad" ? "alert" : undefined}>
      <Icon name={tone === "bad" ? "dead" : "info"} />
      <div>{children}</div>
    </div>
  );
}

/** What a query says while it has no data. */
export function Pending({ error, retry, lines }: { error: Error | null; retry?: () => void; lines?: number }) {
  if (!error) return <Skeleton lines={lines} />;
  const code = error instanceof ApiError && error.status ? `${error.code}: ` : "";
  return (
    <Notice>
      {code}
      {error.message}{" "}
      {retry && (
        <Button size="small" onClick={retry}>
          Try again
        </Button>
      )}
    </Notice>
  );
}

/** A bar that is filled by parts of 1. */
export function Meter({ parts }: { parts: [number, Tone][] }) {
  return (
    <span className="grow meter" aria-hidden="true">
      {parts.map(([part, tone]) => (
        <i key={tone} className={`fill-${tone}`} style={{ width: `${100 * part}%` }} />
      ))}
    </span>
  );
}
