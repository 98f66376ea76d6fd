/** The command palette: finds pages, jobs, executions and queues, and runs actions. */

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { type Job, type Queue, useChange, useGet, type Worker } from "./data/api.ts";
import { isFrozen, live } from "./data/live.ts";
import { executionPath, jobPath, navigate, searchPath, to } from "./data/router.tsx";
import { type Action, useCan, useIsAtLeast } from "./data/session.ts";
import { createStore, useStore } from "./data/store.ts";
import { Icon, type IconName, Status } from "./parts/status.tsx";
import { PAGES } from "./shell.tsx";
import { nextTheme } from "./data/theme.ts";

const isOpen = createStore(false);
export const openPalette = () => isOpen.set(true);
export const togglePalette = () => isOpen.set((now) => !now);

interface Option {
  group: string;
  name: string;
  icon?: IconName;
  state?: string;
  hint?: string;
  run: () => void;
}

export const helpStore = createStore(false);

const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;
export function Palette() {
  return useStore(isOpen) ? <Dialog /> : null;
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

/** What can be done with a job, a queue or a worker whose name fits. */
function useVerbs(jobs: Job[], queues: Queue[], workers: Worker[]): Option[] {
  const can = useCan();
  const pause = useChange("post", "/queues/{name}/pause", (one) => `${one.name} is paused`, "/queues/{name}/resume");
  const resume = useChange("post", "/queues/{name}/resume", (one) => `${one.name} is resumed`, "/queues/{name}/pause");
  const drain = useChange("post", "/workers/{id}/drain", () => "It takes nothing more");
  const verbs: [string, string, IconName, Action, boolean][] = [
    ["Trigger", "?do=trigger", "play", "trigger", true],
    ["Pause", "?do=pause", "pause", "pause", false],
    ["Backfill", "?do=backfill", "calendar", "backfill", false],
    ["Edit", "/edit", "edit", "define", true],
    ["Delete", "?do=delete", "trash", "define", true],
  ];
  const group = "Actions";
  return [
    ...jobs.flatMap((job) =>
      verbs
        .filter(([, , , action, isForAll]) => can(action) && (isForAll || job.schedules.length > 0))
        .map(([verb, at, icon]): Option => ({
          group,
          name: `${verb} ${job.name}…`,
          icon,
          run: () => navigate(jobPath(job.name) + at),
        })),
    ),
    ...(can("pause") ? queues : []).map((one): Option => ({
      group,
      name: `${one.is_paused ? "Resume" : "Pause"} queue ${one.name}`,
      icon: one.is_paused ? "play" : "pause",
      run: () => (one.is_paused ? resume : pause).mutate({ path: { name: one.name }, body: {} }),
    })),
    ...(can("drain") ? workers.filter((one) => one.state === "live") : []).map((one): Option => ({
      group,
      name: `Drain worker ${one.name}`,
      icon: "hourglass",
      hint: one.worker_id.slice(-8),
      run: () => drain.mutate({ path: { id: one.worker_id } }),
    })),
  ];
}

const TABS: [string, string, IconName][] = [
  ["/queues/limits", "Limits", "hourglass"],
  ["/settings/keys", "Keys", "key"],
  ["/settings/secrets", "Secrets", "key"],
  ["/settings/audit", "Audit log", "executions"],
  ["/alerts/rules", "Alert rules", "bell"],
  ["/alerts/subscriptions", "Subscriptions", "events"],
];

/** "pause queue mail" is about mail. */
const VERB = /^(trigger|pause|resume|backfill|edit|delete|drain)\s+((queue|worker|job)\s+)?/i;

function useOptions(typed: string): Option[] {
  const text = typed.replace(VERB, "");
  const words = typed.toLowerCase().split(/\s+/);
  const isAsked = (one: Option) => words.every((word) => one.name.toLowerCase().includes(word));
  const can = useCan();
  const isAdmin = useIsAtLeast("admin");
  const jobs = useGet("/jobs", { query: { q: text || undefined, limit: 8 }, every: false });
  const queues = useGet("/queues", { query: { limit: 50 }, every: false });
  const workers = useGet("/workers", { query: { limit: 200 }, every: false, on: text !== "" });
  const matches = (name: string) => name.toLowerCase().includes(text.toLowerCase());
  const found: Option[] = [];
  if (ID.test(text))
    found.push({ group: "Execution", name: text, icon: "executions", run: () => navigate(executionPath(text)) });
  const places = isAdmin && text ? [...PAGES, ...TABS] : PAGES;
  const pages = places
    .filter(([, name]) => matches(name))
    .map(([href, name, icon]): Option => ({ group: "Pages", name, icon, run: () => navigate(href) }));
  // While the answer is on its way, the one before it is shown: only the part that fits.
  const listed = (jobs.data?.items ?? []).filter((job) => !jobs.isPlaceholderData || matches(job.name));
  const named = listed.map((job): Option => ({
    group: "Jobs",
    name: job.name,
    state: job.status,
    hint: job.kind,
    run: () => navigate(jobPath(job.name)),
  }));
  const crew = (workers.data?.items ?? [])
    .filter((one) => text && (matches(one.name) || one.worker_id.includes(text.toLowerCase())))
    .slice(0, 4);
  const lines = (queues.data?.items ?? []).filter((one) => text && matches(one.name)).slice(0, 5);
  const verbs = useVerbs(text ? listed.slice(0, 2) : [], lines.slice(0, 2), crew.slice(0, 2));
  const go = (name: string, icon: IconName, path: string): Option => ({
    group: "Actions",
    name,
    icon,
    run: () => navigate(path),
  });
  const actions: Option[] = [
    ...(can("define") ? [go("Create a job", "plus", "/jobs/new")] : []),
    ...(can("signal") ? [go("Publish an event", "events", "/events?do=publish")] : []),
    ...(isAdmin ? [go("Create a key", "key", "/settings/keys?do=new")] : []),
    go("Failed executions of the last hour", "dead", searchPath({ status: "dead", finished: "<1h" })),
    {
      group: "Actions",
      name: isFrozen() ? "Unfreeze the page" : "Freeze the page",
      icon: "pause",
      run: () => live.freeze(!isFrozen()),
    },
    { group: "Actions", name: "Change the theme", icon: "moon", run: nextTheme },
    { group: "Actions", name: "Show the keys of the keyboard", icon: "info", run: () => helpStore.set(true) },
  ];
  return [
    ...found,
    ...(text !== typed ? verbs.filter(isAsked) : []),
    ...(text ? [...named, ...pages] : [...pages, ...named]),
    ...lines.map((one): Option => ({
      group: "Queues",
      name: one.name,
      icon: "queues",
      hint: one.is_paused ? "paused" : undefined,
      run: () => navigate(to("/queues", { q: one.name })),
    })),
    ...crew.map((one): Option => ({
      group: "Workers",
      name: one.name,
      state: one.state,
      hint: one.worker_id.slice(-8),
      run: () => navigate(searchPath({ worker: one.worker_id })),
    })),
    ...(text === typed ? verbs : []),
    ...actions.filter(isAsked),
  ];
}
