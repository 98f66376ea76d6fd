/** The parts that all pages are made of. */

import {
  type FormEvent,
  Fragment,
  type KeyboardEvent,
  type MouseEvent,
  type ReactNode,
  useEffect,
  useId,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ApiError } from "./api.ts";
import { count, exact, relative, short, useNow } from "./format.ts";
import { Link, navigate, useAddress } from "./router.tsx";
import { toast } from "./toast.ts";

// Icons: strokes on a grid of 24.
const ICONS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  jobs: "M4 7h16v13H4zM9 7V4h6v3M4 12h16",
  executions: "M8 6h13M8 12h13M8 18h13M3.5 6h.01M3.5 12h.01M3.5 18h.01",
  workflows: "M6 3v6M6 15v6M6 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM18 6a3 3 0 1 0 0-.01M9 12h3c4 0 6-1 6-3",
  calendar: "M4 5h16v16H4zM4 10h16M8 3v4M16 3v4",
  dead: "M12 3 2 20h20L12 3ZM12 10v4M12 17h.01",
  queues: "M3 7l9-4 9 4-9 4-9-4ZM3 12l9 4 9-4M3 17l9 4 9-4",
  workers: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  events: "M13 2 4 14h7l-1 8 9-12h-7l1-8Z",
  settings: "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM19 12l2-1-1-3-2 .4-1.5-1.5L17 5l-3-1-1 2h-2L10 4 7 5l.4 2L6 8.5 4 8l-1 3 2 1v0l-2 1 1 3 2-.5L7.500 17 7 19l3 1 1-2h2l1 2 3-1-.4-2 1.500-1.500 2 .5 1-3-2-1Z",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l1.500 2h-15ZM10 21h4",
  check: "M5 12.500l4.500 4.500L19 7.500",
  cross: "M6 6l12 12M18 6 6 18",
  ring: "M12 4a8 8 0 1 0 8 8",
  circle: "M12 5a7 7 0 1 0 0 14 7 7 0 0 0 0-14Z",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 8v4l3 2",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7V5Z",
  retry: "M20 11a8 8 0 1 0-2.500 6M20 5v6h-6",
  slash: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM6.500 17.500l11-11",
  skip: "M5 6l7 6-7 6V6ZM13 6l7 6-7 6V6Z",
  hourglass: "M7 3h10M7 21h10M8 3v4l4 5-4 5v4M16 3v4l-4 5 4 5v4",
  hand: "M6 3l12 9-6 1.500L9 20 6 3Z",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M6 9l6 6 6-6",
  up: "M6 15l6-6 6 6",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500 19 19M5 19l1.500-1.500M17.500 6.500 19 5",
  moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10Z",
  screen: "M3 5h18v12H3zM8 21h8M12 17v4",
  info: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 11v5M12 8h.01",
  edit: "M4 20l1-5L16 4l4 4L9 19l-5 1Z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  terminal: "M4 6l5 6-5 6M12 18h8",
  key: "M14 10a4 4 0 1 0 0-.01M11 12l-8 8M5 18l2 2M8 15l2 2",
} as const;
export type IconName = keyof typeof ICONS;

export function Icon({ name, className = "" }: { name: IconName; className?: string }) {
  return (
    <svg className={`icon ${className}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

// States: a shape and a tone for each.
type Tone = "ok" | "bad" | "warn" | "run" | "wait" | "idle";
const STATES: Record<string, [Tone, IconName]> = {
  succeeded: ["ok", "check"],
  done: ["ok", "check"],
  live: ["ok", "check"],
  dead: ["bad", "cross"],
  open: ["bad", "bell"],
  acknowledged: ["warn", "check"],
  closed: ["ok", "check"],
  failed: ["bad", "cross"],
  timed_out: ["bad", "clock"],
  lost: ["bad", "slash"],
  late: ["warn", "clock"],
  running: ["run", "ring"],
  retrying: ["warn", "retry"],
  draining: ["warn", "hourglass"],
  paused: ["warn", "pause"],
  waiting: ["wait", "hourglass"],
  sleeping: ["wait", "clock"],
  queued: ["wait", "circle"],
  scheduled: ["idle", "clock"],
  cancelled: ["idle", "slash"],
  skipped: ["idle", "skip"],
  deleted: ["idle", "trash"],
  manual: ["idle", "hand"],
};
export const toneOf = (state: string): Tone => STATES[state]?.[0] ?? "idle";

export function Status({ state, bare = false }: { state: string; bare?: boolean }) {
  const [tone, icon] = STATES[state] ?? ["idle", "circle"];
  const text = state.replaceAll("_", " ");
  return (
    <span className={`status tone-${tone}`} title={bare ? text : undefined}>
      <Icon name={icon} className={state === "running" ? "spin" : ""} />
      {bare ? <span className="hidden-text">{text}</span> : text}
    </span>
  );
}

/** A time: relative, exact on hover. */
export function Time({ at, as = "relative" }: { at: string | null | undefined; as?: "relative" | "short" }) {
  const now = useNow();
  if (!at) return <span className="faint">–</span>;
  return (
    <time className="num" dateTime={at} title={exact(at)}>
      {as === "short" ? short(at) : relative(at, now)}
    </time>
  );
}

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A text of the server: its times as all others are shown, its commands as code. */
export function Told({ text }: { text: string }) {
  const plain = (part: string) => part.split(/`([^`]+)`/).map((one, at) => (at % 2 ? <code key={at}>{one}</code> : one));
  return <>{text.split(MOMENT).map((part, at) => (at % 2 ? <Time key={at} at={part} as="short" /> : <Fragment key={at}>{plain(part)}</Fragment>))}</>;
}

// Buttons and fields.
interface ButtonProps {
  children?: ReactNode;
  icon?: IconName;
  kind?: "primary" | "danger" | "quiet" | "link" | "";
  size?: "small" | "";
  label?: string;
  pressed?: boolean;
  disabled?: boolean;
  title?: string;
  type?: "button" | "submit";
  onClick?: () => void;
}
export function Button({ children, icon, kind = "", size = "", label, pressed, type = "button", ...rest }: ButtonProps) {
  const only = children === undefined ? "icon-only" : "";
  return (
    <button type={type} className={`button ${kind} ${size} ${only}`} aria-label={label} title={label} aria-pressed={pressed} {...rest}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function Field({ label, hint, wrong, children }: { label: string; hint?: ReactNode; wrong?: string; children: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {wrong ? <span className="wrong" role="alert">{wrong}</span> : hint ? <span className="hint">{hint}</span> : null}
    </div>
  );
}

export function Segments<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map(([name, text]) => (
        <button key={name} type="button" aria-pressed={name === value} onClick={() => onChange(name)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Search({ value, onChange, label, placeholder }: { value: string; onChange: (value: string) => void; label: string; placeholder: string }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), 250);
    return () => clearTimeout(timer);
  });
  return (
    <div className="search">
      <Icon name="search" />
      <input className="input" type="search" aria-label={label} placeholder={placeholder} value={text}
        onChange={(event) => setText(event.target.value)} />
    </div>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow to copy here", "bad");
    }
  };
  return <Button icon="copy" kind="quiet" size="small" label={label} onClick={() => void copy()} />;
}

/** Have the browser save a text as a file. */
export function download(name: string, type: string, content: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code tabIndex={0}>{text}</code>
      <Copy text={text} label="Copy the command" />
    </span>
  );
}

// Pages.
export function Page({ title, crumbs, actions, cli, children }: { title: ReactNode; crumbs?: [string, string][]; actions?: ReactNode; cli?: string; children: ReactNode }) {
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
                <span key={href}><Link href={href}>{text}</Link> /</span>
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
  const copy = () => navigator.clipboard.writeText(text).then(() => toast(`Copied: ${text}`), () => toast(text));
  return <span className="copy-command"><Button icon="terminal" kind="quiet" label={`Copy the command: ${text}`} onClick={() => void copy()} /></span>;
}

export function Card({ title, actions, flush, children }: { title?: ReactNode; actions?: ReactNode; flush?: boolean; children: ReactNode }) {
  return (
    <section className={`card ${flush ? "flush" : ""}`}>
      {title && <header><h2>{title}</h2>{actions}</header>}
      <div className="body">{children}</div>
    </section>
  );
}

export function Fact({ name, title, children }: { name: string; title?: string; children: ReactNode }) {
  return <div className="fact" title={title}><dt>{name}</dt><dd>{children}</dd></div>;
}

export function Tabs({ tabs, at }: { tabs: [string, string, string?][]; at: string }) {
  return (
    <nav className="tabs" aria-label="Sections">
      {tabs.map(([name, href, badge]) => (
        <Link key={href} href={href} aria-current={name === at ? "page" : undefined}>
          {name}{badge && <span className="badge">{badge}</span>}
        </Link>
      ))}
    </nav>
  );
}

export function Empty({ icon, title, children, command }: { icon: IconName; title: string; children?: ReactNode; command?: string }) {
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
      {code}{error.message}{" "}
      {retry && <Button size="small" onClick={retry}>Try again</Button>}
    </Notice>
  );
}

// Dialogs.
export function Dialog({ title, wide, onClose, onSubmit, submit, danger, busy, disabled, children }: { title: string; wide?: boolean; onClose: () => void; onSubmit?: () => void; submit?: string; danger?: boolean; busy?: boolean; disabled?: boolean; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const send = (event: FormEvent) => {
    event.preventDefault();
    if (!busy && !disabled) onSubmit?.();
  };
  return (
    <dialog ref={dialog} className={wide ? "wide" : ""} aria-label={title} onClose={onClose}
      onMouseDown={(event) => event.target === dialog.current && onClose()}>
      <form onSubmit={send}>
        <header><h2>{title}</h2></header>
        <div className="content">{children}</div>
        <footer>
          <Button onClick={onClose}>{onSubmit ? "Cancel" : "Close"}</Button>
          {onSubmit && (
            <Button type="submit" kind={danger ? "danger" : "primary"} disabled={busy || disabled}>{submit ?? "OK"}</Button>
          )}
        </footer>
      </form>
    </dialog>
  );
}

/** Asks before something that cannot be undone; above 100 things, the number has to be typed. */
export function Confirm({ title, number, submit, onClose, onConfirm, busy, children }: { title: string; number?: number; submit: string; onClose: () => void; onConfirm: () => void; busy?: boolean; children: ReactNode }) {
  const [typed, setTyped] = useState("");
  const isLarge = (number ?? 0) > 100;
  return (
    <Dialog title={title} submit={submit} danger busy={busy} disabled={isLarge && typed !== String(number)} onClose={onClose} onSubmit={onConfirm}>
      {children}
      {isLarge && (
        <Field label={`Type ${number} to confirm`}>
          {(id) => <input id={id} className="input" inputMode="numeric" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />}
        </Field>
      )}
    </Dialog>
  );
}

// Values as trees. All of it is text.
const PART = 100;
const LONG = 400;

export function Tree({ value, name, open = true }: { value: unknown; name?: string; open?: boolean }) {
  return <div className="tree"><Branch value={value} name={name} depth={open ? 0 : 9} /></div>;
}

function Branch({ value, name, depth }: { value: unknown; name?: string; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const [shown, setShown] = useState(PART);
  const label = name === undefined ? null : <span className="key">{name}: </span>;
  if (typeof value !== "object" || value === null) return <div className="leaf">{label}<Leaf value={value} /></div>;
  const entries = Object.entries(value);
  const brackets = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return <div className="leaf">{label}{brackets.join("")}</div>;
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{label}{brackets[0]} {count(entries.length)} {brackets[1]}</summary>
      {isOpen && (
        <div>
          {entries.slice(0, shown).map(([key, one]) => <Branch key={key} name={key} value={one} depth={depth + 1} />)}
          {entries.length > shown && <Button size="small" kind="quiet" onClick={() => setShown(shown + PART)}>{count(entries.length - shown)} more</Button>}
        </div>
      )}
    </details>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value === "number") return <span className="number">{value}</span>;
  if (typeof value !== "string") return <span className="word">{String(value)}</span>;
  const isLong = value.length > LONG && !isWhole;
  return (
    <>
      <span className="string">"{isLong ? value.slice(0, LONG) : value}"</span>
      {isLong && <Button size="small" kind="quiet" onClick={() => setWhole(true)}>… {count(value.length - LONG)} more characters</Button>}
    </>
  );
}

/** A value in one line, for a cell. */
export function brief(value: unknown, most = 120): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

// Tables: only the rows in sight are in the document.
export interface Column<T> {
  name: string;
  width: string;
  cell: (row: T) => ReactNode;
  /** Shown from this width of the window on. */
  from?: number;
  /** Shown below this width. */
  until?: number;
  /** On a phone only the icon of a status is shown. */
  slim?: boolean;
  right?: boolean;
  /** The time by which the server sorts, if the header is pressed. */
  sort?: string;
}

const followWidth = (listener: () => void) => {
  window.addEventListener("resize", listener);
  return () => window.removeEventListener("resize", listener);
};
export const useWidth = () => useSyncExternalStore(followWidth, () => window.innerWidth);

const PHONE = 480;

interface TableProps<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string;
  href?: (row: T) => string;
  /** In place of an address: what a press of a row does. */
  onOpen?: (row: T) => void;
  onEnd?: () => void;
  selected?: ReadonlySet<string>;
  onSelect?: (key: string) => void;
  footer?: ReactNode;
  height?: number;
  /** The order: one of the columns' sort, with a minus for the latest or longest first. */
  sort?: string;
  onSort?: (sort: string) => void;
}

/** The name of a column; pressed, the list is sorted by it: the largest first, the smallest first, as it was. */
function Head<T>({ one, sort, onSort }: { one: Column<T>; sort?: string; onSort?: (sort: string) => void }) {
  const at = one.sort && (sort === `-${one.sort}` ? "descending" : sort === one.sort ? "ascending" : undefined);
  const next = at === "descending" ? (one.sort ?? "") : at === "ascending" ? "" : `-${one.sort}`;
  return (
    <span className={`th ${one.right ? "right" : ""} ${one.slim ? "slim" : ""}`} role="columnheader" aria-sort={at || undefined}>
      {one.sort && onSort ? (
        <button type="button" className="sorter" onClick={() => onSort(next)} title={at ? `Sorted, ${at}` : `Sort by ${one.sort}`}>
          {one.name}{at && <Icon name={at === "descending" ? "down" : "up"} />}
        </button>
      ) : <span>{one.name}</span>}
    </span>
  );
}

/** Rows that arrive on top while somebody points at the list, or has scrolled, wait: nothing moves away from the pointer. */
function useHeld<T>(rows: T[], keyOf: (row: T) => string, isNewestFirst: boolean) {
  const [first, setFirst] = useState<string | null>(null);
  const hold = (on: boolean) => isNewestFirst && setFirst((now) => (on ? (now ?? (rows[0] ? keyOf(rows[0]) : null)) : null));
  const at = first === null ? 0 : Math.max(0, rows.findIndex((row) => keyOf(row) === first));
  return { rows: at ? rows.slice(at) : rows, waiting: at, hold };
}

export function Table<T>({ label, rows: all, columns, keyOf, href, onOpen, onEnd, selected, onSelect, footer, height = 36, sort, onSort }: TableProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const { rows, waiting, hold } = useHeld(all, keyOf, !sort || sort === "-created");
  const width = useWidth();
  const [active, setActive] = useState(-1);
  const shown = useMemo(() => columns.filter((one) => width >= (one.from ?? 0) && width < (one.until ?? Infinity)), [columns, width]);
  const template = { gridTemplateColumns: `${onSelect ? "18px " : ""}${shown.map((one) => (one.slim && width < PHONE ? "18px" : one.width)).join(" ")}` };
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: 12,
    getItemKey: (at) => keyOf(rows[at] as T),
  });
  const items = list.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= rows.length - 20 && rows.length) onEnd?.();
  });
  const open = (row: T) => (href ? navigate(href(row)) : onOpen?.(row));
  const press = (event: MouseEvent, row: T) => {
    const isOther = (event.target as HTMLElement).closest("a, button, input, label, select, dialog");
    if (!isOther && !window.getSelection()?.toString()) open(row);
  };
  const move = (event: KeyboardEvent) => {
    if (event.target !== box.current) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const row = rows[active];
    if (step) {
      const next = Math.max(0, Math.min(rows.length - 1, active + step));
      setActive(next);
      list.scrollToIndex(next);
    } else if (event.key === "Enter" && row) open(row);
    else if (event.key === "x" && row && onSelect) onSelect(keyOf(row));
    else return;
    event.preventDefault();
  };
  return (
    <div className="table fill" style={{ minHeight: Math.min(rows.length * height + 66, 360) }}>
      <div ref={box} className="scroll" role="table" aria-label={label} aria-rowcount={rows.length + 1} tabIndex={0} onKeyDown={move}
        onPointerEnter={() => hold(true)} onPointerLeave={() => hold((box.current?.scrollTop ?? 0) > 0)} onScroll={() => hold(true)}>
        <div role="rowgroup">
          <div className="tr head" role="row" style={template}>
            {onSelect && <span className="th" role="columnheader"><span className="hidden-text">Selected</span></span>}
            {shown.map((one) => <Head key={one.name} one={one} sort={sort} onSort={onSort} />)}
          </div>
        </div>
        <div className="body" role="rowgroup" style={{ height: list.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index] as T;
            const key = keyOf(row);
            return (
              <div key={key} className="tr" role="row" aria-rowindex={item.index + 2} data-active={item.index === active} data-selected={selected?.has(key)}
                style={{ ...template, height, transform: `translateY(${item.start}px)` }}
                data-opens={Boolean(href ?? onOpen)} onClick={(event) => press(event, row)}>
                {onSelect && (
                  <span className="td" role="cell" onClick={(event) => event.stopPropagation()}>
                    <input type="checkbox" aria-label="Select this row" checked={selected?.has(key) ?? false} onChange={() => onSelect(key)} />
                  </span>
                )}
                {shown.map((one) => <span key={one.name} className={`td ${one.right ? "right num" : ""} ${one.slim ? "slim" : ""}`} role="cell">{one.cell(row)}</span>)}
              </div>
            );
          })}
        </div>
      </div>
      {footer && <footer>{footer}{waiting > 0 && <span role="status">{count(waiting)} new</span>}</footer>}
    </div>
  );
}

/** Empty pages after which a search asks before it goes on. */
const SEARCHED = 30;

/** Rows, or what there is to say in their place. */
export function Listing<T>({ list, empty, total, ...rest }: Omit<TableProps<T>, "rows" | "onEnd" | "footer"> & {
  list: { rows: T[]; isPending: boolean; error: Error | null; refetch: () => unknown; more: () => void; reset: () => void; isPaged: boolean; read: number; hasNextPage: boolean; isFetchingNextPage: boolean };
  empty: ReactNode;
  /** How many there are, if that is known. */
  total?: string;
}) {
  // A page of a search may be empty although a later one is not: the server reads a part at a time.
  const hasMore = !list.error && !list.rows.length && list.hasNextPage;
  const isSearching = hasMore && list.read % SEARCHED !== 0;
  useEffect(() => {
    if (isSearching) list.more();
  });
  if (hasMore && !isSearching)
    return <Card><Empty icon="search" title="Nothing among the newest"><Button size="small" disabled={list.isFetchingNextPage} onClick={list.more}>Search further back</Button></Empty></Card>;
  if (list.isPending || isSearching || (list.error && !list.rows.length))
    return <Card><Pending error={list.error} retry={() => void list.refetch()} lines={8} /></Card>;
  if (!list.rows.length) return <Card>{empty}</Card>;
  return (
    <Table {...rest} rows={list.rows} onEnd={list.more}
      footer={
        <>
          <span>{count(list.rows.length)}{list.hasNextPage && !total ? "+" : ""}{list.hasNextPage && total ? ` of ${total}` : ""} shown{list.isFetchingNextPage ? ", loading more…" : ""}</span>
          {list.isPaged && <Button size="small" kind="quiet" onClick={list.reset}>Back to the newest, live</Button>}
        </>
      } />
  );
}

/** The address without its query, for tabs of one page. */
export const usePath = () => useAddress().path;
