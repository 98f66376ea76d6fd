/** Values as trees. All of it is text. */

import { useState } from "react";
import { count } from "../data/format.ts";
import { Button } from "./controls.tsx";

const PART = 100;
const LONG = 400;

export function Tree({ value, name, open = true }: { value: unknown; name?: string; open?: boolean }) {
  return (
    <div className="tree">
      <Branch value={value} name={name} depth={open ? 0 : 9} />
    </div>
  );
}

function Branch({ value, name, depth }: { value: unknown; name?: string; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const [shown, setShown] = useState(PART);
  const label = name === undefined ? null : <span className="key">{name}: </span>;
  if (typeof value !== "object" || value === null)
    return (
      <div className="leaf">
        {label}
        <Leaf value={value} />
      </div>
    );
  const entries = Object.entries(value);
  const brackets = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length)
    return (
      <div className="leaf">
        {label}
        {brackets.join("")}
      </div>
    );
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        {brackets[0]} {count(entries.length)} {brackets[1]}
      </summary>
      {isOpen && (
        <div>
          {entries.slice(0, shown).map(([key, one]) => (
            <Branch key={key} name={key} value={one} depth={depth + 1} />
          ))}
          {entries.length > shown && (
            <Button size="small" kind="quiet" onClick={() => setShown(shown + PART)}>
              {count(entries.length - shown)} more
            </Button>
          )}
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
      {isLong && (
        <Button size="small" kind="quiet" onClick={() => setWhole(true)}>
          … {count(value.length - LONG)} more characters
        </Button>
      )}
    </>
  );
}

/** A value in one line, for a cell. */
export function brief(value: unknown, most = 120): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
