/** The command palette: finds pages, jobs, executions and queues, and runs actions. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { useGet } from "./data/api.ts";
import { isFrozen, live } from "./data/live.ts";
import { executionPath, jobPath, navigate, searchPath } from "./data/router.tsx";
import { type Action, useCan } from "./data/session.ts";
import { createStore, useStore } from "./data/store.ts";
import { Icon, type IconName, Status } from "./parts/status.tsx";
import { PAGES } from "./shell.tsx";

const isOpen = createStore(false);
export const openPalette = () => isOpen.set(true);

interface Option {
  group: string;
  name: string;
  icon?: IconName;
  state?: string;
  hint?: string;
  run: () => void;
}

const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;
const GO: Record<string, string> = {
  o: "/",
  j: "/jobs",
  e: "/executions",
  w: "/workflows",
  c: "/calendar",
  d: "/dead-letters",
  l: "/logs",
  a: "/alerts",
  q: "/queues",
};

export function Palette() {
  const shown = useStore(isOpen);
  useEffect(() => {
    let wasG = false;
    const press = (event: globalThis.KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        isOpen.set((now) => !now);
        return;
      }
      const inField = (event.target as HTMLElement).closest?.("input, textarea, select, dialog");
      if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
      }
      const page = wasG ? GO[event.key] : undefined;
      wasG = event.key === "g";
      if (page) navigate(page);
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  return shown ? <Dialog /> : null;
}

function Dialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const options = useOptions(text.trim());
  useEffect(() => dialog.current?.showModal(), []);
  const chosen = options[Math.min(at, options.length - 1)];
  useEffect(() => {
    dialog.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at]);
  const close = () => isOpen.set(false);
  const choose = (option: Option | undefined) => {
    if (!option) return;
    close();
    option.run();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, options.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(chosen);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Command palette"
      onClose={close}
      onMouseDown={(event) => event.target === dialog.current && close()}
    >
      <div className="inside">
        <input
          className="input"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-options"
          aria-activedescendant={chosen && `option-${options.indexOf(chosen)}`}
          aria-label="Search or run a command"
          placeholder="A page, a job, an id, an action…"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={press}
        />
        <div className="options" id="palette-options" role="listbox" aria-label="Results">
          {options.map((one, index) => (
            <div key={`${one.group} ${one.name} ${one.hint}`} role="presentation">
              {options[index - 1]?.group !== one.group && (
                <div className="group" role="presentation">
                  {one.group}
                </div>
              )}
              <div
                id={`option-${index}`}
                role="option"
                aria-selected={one === chosen}
                onMouseMove={() => setAt(index)}
                onClick={() => choose(one)}
              >
                {one.state ? <Status state={one.state} bare /> : <Icon name={one.icon ?? "jobs"} />}
                <span className="cut">{one.name}</span>
                {one.hint && <span className="muted">{one.hint}</span>}
              </div>
            </div>
          ))}
          {!options.length && <div className="group">Nothing has this name</div>}
        </div>
      </div>
    </dialog>
  );
}

function useOptions(text: string): Option[] {
  const can = useCan();
  const jobs = useGet("/jobs", { query: { q: text || undefined, limit: 8 }, every: false });
  const queues = useGet("/queues", { query: { limit: 50 }, every: false });
  const workers = useGet("/workers", { query: { limit: 200 }, every: false, on: text !== "" });
  const matches = (name: string) => name.toLowerCase().includes(text.toLowerCase());
  const found: Option[] = [];
  if (ID.test(text))
    found.push({ group: "Execution", name: text, icon: "executions", run: () => navigate(executionPath(text)) });
  const pages = PAGES.filter(([, name]) => matches(name)).map(([href, name, icon]): Option => ({
    group: "Pages",
    name,
    icon,
    run: () => navigate(href),
  }));
  // While the answer is on its way, the one before it is shown: only the part that fits.
  const listed = (jobs.data?.items ?? []).filter((job) => !jobs.isPlaceholderData || matches(job.name));
  const named = listed.map((job): Option => ({
    group: "Jobs",
    name: job.name,
    state: job.status,
    hint: job.kind,
    run: () => navigate(jobPath(job.name)),
  }));
  const verbs: [string, string, IconName, Action, boolean][] = [
    ["Trigger", "?do=trigger", "play", "trigger", true],
    ["Pause", "?do=pause", "pause", "pause", false],
    ["Backfill", "?do=backfill", "calendar", "backfill", false],
    ["Edit", "/edit", "edit", "define", true],
    ["Delete", "?do=delete", "trash", "define", true],
  ];
  const onJobs = (text ? listed.slice(0, 2) : []).flatMap((job) =>
    verbs
      .filter(([, , , action, isForAll]) => can(action) && (isForAll || job.schedules.length > 0))
      .map(([verb, at, icon]): Option => ({
        group: "Actions",
        name: `${verb} ${job.name}…`,
        icon,
        run: () => navigate(jobPath(job.name) + at),
      })),
  );
  const crew = (workers.data?.items ?? [])
    .filter((one) => text && (matches(one.name) || one.worker_id.includes(text.toLowerCase())))
    .slice(0, 4)
    .map((one): Option => ({
      group: "Workers",
      name: one.name,
      state: one.state,
      hint: one.worker_id.slice(-8),
      run: () => navigate(searchPath({ worker: one.worker_id })),
    }));
  const lines = (queues.data?.items ?? [])
    .filter((one) => text && matches(one.name))
    .slice(0, 5)
    .map((one): Option => ({
      group: "Queues",
      name: one.name,
      icon: "queues",
      run: () => navigate(`/queues?q=${encodeURIComponent(one.name)}`),
    }));
  const actions: Option[] = [
    ...(can("define")
      ? [{ group: "Actions", name: "Create a job", icon: "plus" as const, run: () => navigate("/jobs/new") }]
      : []),
    {
      group: "Actions",
      name: isFrozen() ? "Unfreeze the page" : "Freeze the page",
      icon: "pause",
      run: () => live.freeze(!isFrozen()),
    },
    {
      group: "Actions",
      name: "Failed executions of the last hour",
      icon: "dead",
      run: () => navigate(searchPath({ status: "dead", finished: "<1h" })),
    },
  ];
  return [
    ...found,
    ...(text ? [...named, ...pages] : [...pages, ...named]),
    ...lines,
    ...crew,
    ...onJobs,
    ...actions.filter((one) => matches(one.name)),
  ];
}
