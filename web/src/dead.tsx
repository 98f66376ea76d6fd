/** Dead letters: by job and error, with what can be done about all of a kind. */

import { useState } from "react";
import { type Execution, useChange, useList } from "./api.ts";
import { count, plural, shortId } from "./format.ts";
import { type ErrorGroup, errorOf, groupErrors } from "./overview.tsx";
import { executionPath, Link, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { brief, Button, Card, type Column, Confirm, Empty, Listing, Notice, Page, Search, Time } from "./ui.tsx";

const columns: Column<Execution>[] = [
  { name: "Job", width: "minmax(90px, 1fr)", cell: (one) => <Link className="strong cut" href={executionPath(one.execution_id)}>{one.job}</Link> },
  { name: "Error", width: "minmax(90px, 3fr)", cell: (one) => <span className="cut tone-bad small">{errorOf(one).type}{errorOf(one).message && `: ${errorOf(one).message}`}</span> },
  { name: "Arguments", width: "minmax(100px, 1.6fr)", from: 1100, cell: (one) => <span className="cut muted small mono">{brief(one.args)}</span> },
  { name: "Tries", width: "44px", from: 800, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  { name: "Died", width: "80px", right: true, cell: (one) => <span className="muted"><Time at={one.finished_at} /></span> },
  { name: "Id", width: "84px", from: 1400, cell: (one) => <span className="faint mono small">{shortId(one.execution_id)}</span> },
];

interface Wanted {
  job?: string;
  error?: string;
}

export default function DeadLettersPage() {
  const [job, setJob] = useFilter("job");
  const [error, setError] = useFilter("error");
  const filter: Wanted = { ...(job && { job }), ...(error && { error }) };
  const list = useList<Execution>("/dead-letters", filter);
  const [asks, setAsks] = useState<{ verb: "retry" | "discard"; filter: Wanted; ids?: string[] } | null>(null);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const can = useCan();
  const groups = groupErrors(list.rows);
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    setSelected(next);
  };
  const both = (wanted: Wanted, ids?: string[]) => (
    <>
      {can("retry") && <Button size="small" icon="retry" onClick={() => setAsks({ verb: "retry", filter: wanted, ids })}>Retry</Button>}
      {can("discard") && <Button size="small" kind="danger" onClick={() => setAsks({ verb: "discard", filter: wanted, ids })}>Discard</Button>}
    </>
  );
  return (
    <Page title="Dead letters" cli={["daybell dead-letters list", job && `--job ${job}`].filter(Boolean).join(" ")}
      actions={list.rows.length > 0 && <><Export rows={list.rows} />{both(filter)}</>}>
      <div className="toolbar">
        <Search label="Job" placeholder="Job, exactly" value={job} onChange={setJob} />
        <Search label="Error" placeholder="Error: a class or a part of its message" value={error} onChange={setError} />
      </div>
      {groups.length > 0 && (
        <Card title="By job and error" flush actions={list.hasNextPage && <span className="small faint">of the newest {count(list.rows.length)}</span>}>
          <ul className="list">{groups.slice(0, 8).map((one) => <GroupRow key={one.key} one={one} isMore={list.hasNextPage}>{both({ job: one.job, error: one.type })}</GroupRow>)}</ul>
        </Card>
      )}
      {selected.size > 0 && <Notice tone="run"><span className="row wrap">{plural(selected.size, "dead letter")} selected {both({}, [...selected])}<Button size="small" kind="quiet" onClick={() => setSelected(new Set())}>Clear</Button></span></Notice>}
      <Listing label="Dead letters" list={list} columns={columns} keyOf={(one) => one.execution_id} href={(one) => executionPath(one.execution_id)}
        selected={selected} onSelect={can("discard") ? toggle : undefined}
        empty={job || error ? <Empty icon="search" title="No dead letter matches" /> : <Empty icon="check" title="No dead letters" command="daybell dead-letters list">An execution that runs out of retries is kept here until you retry or discard it.</Empty>} />
      {asks && <Decide {...asks} onClose={() => { setAsks(null); setSelected(new Set()); }} />}
    </Page>
  );
}

function GroupRow({ one, isMore, children }: { one: ErrorGroup; isMore: boolean; children: React.ReactNode }) {
  return (
    <li className="wrap">
      <span className="badge bad">{count(one.number, isMore)}</span>
      <span className="grow">
        <span className="strong">{one.job}</span> <span className="tone-bad small">{one.type}</span>
        <span className="cut muted small block">{one.message}</span>
      </span>
      <span className="small muted">first <Time at={one.first.finished_at} />, last <Time at={one.last.finished_at} /></span>
      <span className="row">{children}</span>
    </li>
  );
}

/** Ask how many it is about, then do it, page by page. */
function Decide({ verb, filter, ids, onClose }: { verb: "retry" | "discard"; filter: Wanted; ids?: string[]; onClose: () => void }) {
  const counted = useList<Execution>("/dead-letters", { ...filter, limit: 1000 }, !ids);
  const act = useChange("post", `/dead-letters/${verb}`, (answer) => `${plural(answer.revived ?? answer.discarded ?? 0, "dead letter")} ${verb === "retry" ? "run again" : "discarded"}`);
  const number = ids?.length ?? counted.rows.length;
  const body = ids ? { ids } : { filter };
  const run = (cursor?: string | null) =>
    act.mutate({ body: { ...body, ...(cursor && { cursor }) } }, { onSuccess: (answer) => (answer.next_cursor ? run(answer.next_cursor) : onClose()) });
  const about = Object.entries(filter).map(([name, value]) => `${name} ${value}`).join(", ");
  return (
    <Confirm title={verb === "retry" ? "Run dead letters again?" : "Discard dead letters?"} number={number} submit={verb === "retry" ? "Retry them" : "Discard them"} busy={act.isPending || (!ids && counted.isPending)} onClose={onClose} onConfirm={() => run()}>
      <p>{plural(number, "dead letter")}{counted.hasNextPage && " or more"}{about && ` of ${about}`}. {verb === "retry" ? "Their tries are counted anew." : "They leave this list and stay in the history."}</p>
    </Confirm>
  );
}

function Export({ rows }: { rows: Execution[] }) {
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.map((one) => JSON.stringify(one)).join("\n")], { type: "application/x-ndjson" }));
    link.download = "dead-letters.ndjson";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return <Button size="small" icon="download" onClick={save}>Export</Button>;
}
