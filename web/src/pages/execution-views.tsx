/** What the list of executions shows: its columns, and filters under a name. */

import { useState } from "react";
import { Link, to, useAddress, useFilter } from "../data/router.tsx";
import { createKept, useStore } from "../data/store.ts";
import { Button, Copy, TextField } from "../parts/controls.tsx";
import { columns, EXTRA } from "../parts/execution-columns.tsx";
import { Menu } from "../parts/menu.tsx";

interface View {
  name: string;
  search: string;
}
const views = createKept<View[]>("daybell.views", []);
const hiddenColumns = createKept<string[]>("daybell.executions.without", EXTRA);

/** Views for those who have saved none. */
const EXAMPLES: [string, string][] = [
  ["Dead in the last day", "status:dead finished:<24h"],
  ["Ran for more than a minute", "duration:>1m"],
  ["Waiting for an event or a person", "status:waiting"],
];

/** The columns to show: those of a shared view, or the choice of this browser. */
export function useColumns() {
  const [shared] = useFilter("columns");
  const hidden = useStore(hiddenColumns);
  const names = shared ? shared.split(",") : null;
  return columns.filter((one) => one.name === "Job" || (names ? names.includes(one.name) : !hidden.includes(one.name)));
}

export function ColumnsMenu() {
  const [shared, setShared] = useFilter("columns");
  const shown = useColumns().map((one) => one.name);
  const flip = (name: string) => {
    const next = shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name];
    if (shared) setShared(next.join(","));
    else hiddenColumns.set(columns.map((one) => one.name).filter((one) => !next.includes(one)));
  };
  return (
    <Menu name="Columns">
      {columns
        .filter((one) => one.name !== "Job")
        .map((one) => (
          <label key={one.name} className="row">
            <input type="checkbox" checked={shown.includes(one.name)} onChange={() => flip(one.name)} /> {one.name}
          </label>
        ))}
    </Menu>
  );
}

/** A view is an address, and can be shared; its name stays in this browser. */
export function Views() {
  const all = useStore(views);
  const [name, setName] = useState("");
  const { query } = useAddress();
  const shown = useColumns().map((one) => one.name);
  const address = to("/executions", { ...Object.fromEntries(query), columns: shown.join(",") });
  const save = () => {
    const search = address.split("?")[1] ?? "";
    views.set([...all.filter((one) => one.name !== name), { name, search }]);
    setName("");
  };
  return (
    <Menu name="Views">
      {all.map((one) => (
        <span key={one.name} className="row between">
          <Link className="cut" href={`/executions?${one.search}`}>
            {one.name}
          </Link>
          <Button
            size="small"
            kind="quiet"
            icon="cross"
            label={`Forget ${one.name}`}
            onClick={() => views.set(all.filter((other) => other !== one))}
          />
        </span>
      ))}
      {!all.length &&
        EXAMPLES.map(([text, q]) => (
          <Link key={q} className="cut" href={to("/executions", { q })}>
            {text}
          </Link>
        ))}
      <TextField label="Save filters and columns as" value={name} onChange={setName} />
      <span className="row between">
        <Button size="small" disabled={!name.trim()} onClick={save}>
          Save
        </Button>
        <Copy text={window.location.origin + address} label="Copy the address of this view" />
      </span>
    </Menu>
  );
}
