/** Tables: only the rows in sight are in the document. */

import {
  type KeyboardEvent,
  type MouseEvent,
  type ReactNode,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { count } from "../data/format.ts";
import { navigate } from "../data/router.tsx";
import { Button } from "./controls.tsx";
import { Card, Empty, Pending } from "./page.tsx";
import { Icon } from "./status.tsx";

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
    <span
      className={`th ${one.right ? "right" : ""} ${one.slim ? "slim" : ""}`}
      role="columnheader"
      aria-sort={at || undefined}
    >
      {one.sort && onSort ? (
        <button
          type="button"
          className="sorter"
          onClick={() => onSort(next)}
          title={at ? `Sorted, ${at}` : `Sort by ${one.sort}`}
        >
          {one.name}
          {at && <Icon name={at === "descending" ? "down" : "up"} />}
        </button>
      ) : (
        <span>{one.name}</span>
      )}
    </span>
  );
}

/** Rows that arrive on top while somebody points at the list, or has scrolled, wait: nothing moves away from the pointer. */
function useHeld<T>(rows: T[], keyOf: (row: T) => string, isNewestFirst: boolean) {
  const [first, setFirst] = useState<string | null>(null);
  const hold = (on: boolean) =>
    isNewestFirst && setFirst((now) => (on ? (now ?? (rows[0] ? keyOf(rows[0]) : null)) : null));
  const at =
    first === null
      ? 0
      : Math.max(
          0,
          rows.findIndex((row) => keyOf(row) === first),
        );
  return { rows: at ? rows.slice(at) : rows, waiting: at, hold };
}

export function Table<T>({
  label,
  rows: all,
  columns,
  keyOf,
  href,
  onOpen,
  onEnd,
  selected,
  onSelect,
  footer,
  height = 36,
  sort,
  onSort,
}: TableProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const { rows, waiting, hold } = useHeld(all, keyOf, !sort || sort === "-created");
  const width = useWidth();
  // By its key: rows that arrive do not move the mark to another one.
  const [activeKey, setActiveKey] = useState<string | null>(null);
  const active = activeKey === null ? -1 : rows.findIndex((row) => keyOf(row) === activeKey);
  const shown = useMemo(
    () => columns.filter((one) => width >= (one.from ?? 0) && width < (one.until ?? Infinity)),
    [columns, width],
  );
  const template = {
    gridTemplateColumns: `${onSelect ? "18px " : ""}${shown.map((one) => (one.slim && width < PHONE ? "18px" : one.width)).join(" ")}`,
  };
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
    const all = rows.length;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -all, End: all }[event.key];
    const row = rows[active];
    if (step && all) {
      const next = Math.max(0, Math.min(all - 1, active + step));
      setActiveKey(keyOf(rows[next] as T));
      hold(next > 0);
      list.scrollToIndex(next);
    } else if (event.key === "Enter" && row) open(row);
    else if (event.key === "x" && row && onSelect) onSelect(keyOf(row));
    else return;
    event.preventDefault();
  };
  return (
    <div className="table fill" style={{ minHeight: Math.min(rows.length * height + (footer ? 66 : 34), 360) }}>
      <div
        ref={box}
        className="scroll"
        role="table"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        tabIndex={0}
        onKeyDown={move}
        onPointerEnter={() => hold(true)}
        onPointerLeave={() => hold((box.current?.scrollTop ?? 0) > 0)}
        onScroll={() => hold(true)}
      >
        <div role="rowgroup">
          <div className="tr head" role="row" style={template}>
            {onSelect && (
              <span className="th" role="columnheader">
                <span className="hidden-text">Selected</span>
              </span>
            )}
            {shown.map((one) => (
              <Head key={one.name} one={one} sort={sort} onSort={onSort} />
            ))}
          </div>
        </div>
        <div className="body" role="rowgroup" style={{ height: list.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index] as T;
            const key = keyOf(row);
            return (
              <div
                key={key}
                className="tr"
                role="row"
                aria-rowindex={item.index + 2}
                data-active={item.index === active}
                data-selected={selected?.has(key)}
                style={{ ...template, height, transform: `translateY(${item.start}px)` }}
                data-opens={Boolean(href ?? onOpen)}
                onClick={(event) => press(event, row)}
              >
                {onSelect && (
                  <span className="td" role="cell" onClick={(event) => event.stopPropagation()}>
                    <input
                      type="checkbox"
                      aria-label="Select this row"
                      checked={selected?.has(key) ?? false}
                      onChange={() => onSelect(key)}
                    />
                  </span>
                )}
                {shown.map((one) => (
                  <span
                    key={one.name}
                    className={`td ${one.right ? "right num" : ""} ${one.slim ? "slim" : ""}`}
                    role="cell"
                  >
                    {one.cell(row)}
                  </span>
                ))}
              </div>
            );
          })}
        </div>
      </div>
      {footer && (
        <footer>
          {footer}
          {waiting > 0 && <span role="status">{count(waiting)} new</span>}
        </footer>
      )}
    </div>
  );
}

/** Empty pages after which a search asks before it goes on. */
const SEARCHED = 30;

/** Rows, or what there is to say in their place. */
export function Listing<T>({
  list,
  empty,
  total,
  ...rest
}: Omit<TableProps<T>, "rows" | "onEnd" | "footer"> & {
  list: {
    rows: T[];
    isPending: boolean;
    error: Error | null;
    refetch: () => unknown;
    more: () => void;
    reset: () => void;
    isPaged: boolean;
    read: number;
    hasNextPage: boolean;
    isFetchingNextPage: boolean;
  };
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
    return (
      <Card>
        <Empty icon="search" title="Nothing among the newest">
          <Button size="small" disabled={list.isFetchingNextPage} onClick={list.more}>
            Search further back
          </Button>
        </Empty>
      </Card>
    );
  if (list.isPending || isSearching || (list.error && !list.rows.length))
    return (
      <Card>
        <Pending error={list.error} retry={() => void list.refetch()} lines={8} />
      </Card>
    );
  if (!list.rows.length) return <Card>{empty}</Card>;
  return (
    <Table
      {...rest}
      rows={list.rows}
      onEnd={list.more}
      footer={
        <>
          <span>
            {count(list.rows.length)}
            {list.hasNextPage && !total ? "+" : ""}
            {list.hasNextPage && total ? ` of ${total}` : ""} shown{list.isFetchingNextPage ? ", loading more…" : ""}
          </span>
          {list.isPaged && (
            <Button size="small" kind="quiet" onClick={list.reset}>
              Back to the newest, live
            </Button>
          )}
        </>
      }
    />
  );
}
