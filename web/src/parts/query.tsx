/** The query bar: `status:dead job:etl* since:1h`, with suggestions while typing. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { useGet } from "../data/api.ts";
import { Icon } from "./status.tsx";

const NAMES: Record<string, string> = {
  status: "one or more states: dead,retrying",
  job: "a name, or a prefix: etl*",
  queue: "a queue",
  worker: "an id or a name",
  user: "the owner of the job",
  workflow: "the id of a run",
  since: "created within: 1h, or since a date",
  until: "created before",
  finished: "<1d: within a day",
  duration: ">5m: ran longer than",
  error: "a class, or a part of the message",
  key: "a unique key, exactly",
  "arg.": "an argument: arg.order_id:42",
};
const STATES = [
  "pending",
  "running",
  "queued",
  "scheduled",
  "retrying",
  "waiting",
  "succeeded",
  "dead",
  "cancelled",
  "skipped",
];
const TIMES = ["15m", "1h", "24h", "7d", "30d"];

interface Suggestion {
  text: string;
  hint: string;
}

function useSuggestions(word: string): Suggestion[] {
  const [name = "", value] = word.split(/:(.*)/s);
  const asksJobs = name === "job" && value !== undefined;
  const jobs = useGet("/jobs", { query: { prefix: value || undefined, limit: 8 }, on: asksJobs, every: false });
  const queues = useGet("/queues", {
    query: { limit: 100 },
    on: name === "queue" && value !== undefined,
    every: false,
  });
  const workers = useGet("/workers", { on: name === "worker" && value !== undefined, every: false });
  if (value === undefined)
    return Object.entries(NAMES)
      .filter(([one]) => one.startsWith(word))
      .map(([one, hint]) => ({ text: one.endsWith(".") ? one : `${one}:`, hint }));
  const values: Record<string, string[]> = {
    status: STATES,
    job: (jobs.data?.items ?? []).map((one) => one.name),
    queue: (queues.data?.items ?? []).map((one) => one.name),
    worker: (workers.data?.items ?? []).map((one) => one.name),
    since: TIMES,
    until: TIMES,
    finished: TIMES.map((one) => `<${one}`),
    duration: [">1s", ">1m", ">5m", ">1h", "<1s"],
  };
  const found = (values[name] ?? []).filter((one) => one.startsWith(value) && one !== value);
  return found.slice(0, 12).map((one) => ({ text: `${name}:${one} `, hint: "" }));
}

export function QueryBar({
  value,
  onChange,
  wrong,
}: {
  value: string;
  onChange: (value: string) => void;
  wrong?: string;
}) {
  const [text, setText] = useState(value);
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(value), [value]);
  const start = text.lastIndexOf(" ") + 1;
  const found = useSuggestions(isOpen ? text.slice(start) : "");
  const apply = (next: string) => {
    setOpen(false);
    onChange(next.trim());
  };
  const take = (one: Suggestion) => {
    const next = text.slice(0, start) + one.text;
    setText(next);
    setAt(-1);
    if (one.text.endsWith(" ")) onChange(next.trim());
    input.current?.focus();
  };
  const press = (event: KeyboardEvent) => {
    const chosen = found[at];
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, -1));
    else if (event.key === "Enter" && isOpen && chosen) take(chosen);
    else if (event.key === "Tab" && isOpen && chosen) take(chosen);
    else if (event.key === "Enter") apply(text);
    else if (event.key === "Escape" && isOpen) setOpen(false);
    else return;
    event.preventDefault();
  };
  return (
    <div className="query-bar">
      <div className="search">
        <Icon name="search" />
        <input
          ref={input}
          className="input mono"
          type="search"
          role="combobox"
          aria-label="Query"
          aria-expanded={isOpen && found.length > 0}
          aria-controls="query-options"
          aria-autocomplete="list"
          aria-invalid={wrong !== undefined}
          autoComplete="off"
          spellCheck={false}
          placeholder="status:dead job:etl* since:1h arg.order_id:42"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setOpen(true);
            setAt(-1);
            if (!event.target.value) onChange("");
          }}
          onFocus={() => setOpen(true)}
          onBlur={() => {
            setOpen(false);
            if (text.trim() !== value) apply(text);
          }}
          onKeyDown={press}
        />
        {isOpen && found.length > 0 && (
          <div className="suggestions" id="query-options" role="listbox" aria-label="Suggestions">
            {found.map((one, index) => (
              <div
                key={one.text}
                role="option"
                aria-selected={index === at}
                onMouseDown={(event) => {
                  event.preventDefault();
                  take(one);
                }}
              >
                <span className="mono">{one.text}</span> <span className="faint small">{one.hint}</span>
              </div>
            ))}
          </div>
        )}
      </div>
      {wrong && (
        <p className="tone-bad small" role="alert">
          {wrong}
        </p>
      )}
    </div>
  );
}

/** Put a condition into a query, in place of those with its name. */
export function withCondition(q: string, name: string, value: string) {
  const rest = q.split(/\s+(?=(?:[^"]*"[^"]*")*[^"]*$)/).filter((one) => one && !one.startsWith(`${name}:`));
  return [...rest, ...(value ? [`${name}:${value}`] : [])].join(" ");
}
