/** The frame of a page, its cards, and what stands in place of missing data. */

import { type ReactNode, useEffect } from "react";
import { ApiError } from "../data/api.ts";
import { Link } from "../data/router.tsx";
import { toast } from "../data/toast.ts";
import { Button, Command } from "./controls.tsx";
import { Icon, type IconName, type Tone } from "./status.tsx";

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
                <span key={href}>
                  <Link href={href}>{text}</Link> /
                </span>
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
  children,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  flush?: boolean;
  children: ReactNode;
}) {
  return (
    <section className={`card ${flush ? "flush" : ""}`}>
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
