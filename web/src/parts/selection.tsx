/** Rows that are selected in a list, and a bar with what can be done about them. */

import { type ReactNode, useState } from "react";
import { plural } from "../data/format.ts";
import { Button } from "./controls.tsx";

export function useSelection() {
  const [keys, setKeys] = useState<ReadonlySet<string>>(new Set());
  const toggle = (key: string) => {
    const next = new Set(keys);
    if (!next.delete(key)) next.add(key);
    setKeys(next);
  };
  return { keys, toggle, clear: () => setKeys(new Set()) };
}

/** It lies over the end of the list, so that no row moves away from the pointer. */
export function SelectionBar({
  number,
  noun,
  onClear,
  children,
}: {
  number: number;
  noun: string;
  onClear: () => void;
  children: ReactNode;
}) {
  if (!number) return null;
  return (
    <div className="selection" role="region" aria-label="Selected rows">
      <b className="nowrap">{plural(number, noun)} selected</b>
      {children}
      <Button size="small" kind="quiet" icon="cross" label="Clear the selection" onClick={onClear} />
    </div>
  );
}
