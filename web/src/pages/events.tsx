/** Events on record, and a form to publish one. */

import { useState } from "react";
import { type Answer, useChange, useList } from "../data/api.ts";
import { plural, readJson } from "../data/format.ts";
import { executionPath, Link, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Button, TextField } from "../parts/controls.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief, Tree } from "../parts/tree.tsx";

type Event = Answer<"get", "/events">["items"][number];

export default function EventsPage() {
  const list = useList<Event>("/events");
  const can = useCan();
  const [asks, setAsks] = useFilter("do");
  const isNew = asks === "publish" && can("signal");
  const setNew = (on: boolean) => setAsks(on ? "publish" : "");
  const [shown, setShown] = useState<Event | null>(null);
  const columns: Column<Event>[] = [
    {
      name: "Type",
      width: "minmax(120px, 1fr)",
      cell: (one) => (
        <button type="button" className="button link cut" onClick={() => setShown(one)}>
          {one.type}
        </button>
      ),
    },
    {
      name: "Data",
      width: "minmax(120px, 3fr)",
      cell: (one) => <span className="cut mono small muted">{brief(one.data)}</span>,
    },
    {
      name: "Source",
      width: "minmax(80px, 1fr)",
      from: 900,
      cell: (one) => <span className="cut muted">{one.source}</span>,
    },
    {
      name: "For",
      width: "100px",
      from: 700,
      cell: (one) =>
        one.execution_id ? (
          <Link className="mono small" href={executionPath(one.execution_id)}>
            {one.execution_id.slice(-8)}
          </Link>
        ) : (
          <span className="faint">all</span>
        ),
    },
    {
      name: "Received",
      width: "92px",
      right: true,
      cell: (one) => (
        <span className="muted">
          <Time at={one.received_at} />
        </span>
      ),
    },
  ];
  return (
    <Page
      title="Events"
      cli="daybell events list"
      actions={
        can("signal") && (
          <Button icon="plus" onClick={() => setNew(true)}>
            Publish an event
          </Button>
        )
      }
    >
      <Listing
        label="Events"
        list={list}
        columns={columns}
        keyOf={(one) => `${one.source} ${one.event_id}`}
        empty={
          <Empty
            icon="events"
            title="No event is on record"
            command={"daybell events publish order.paid --data '{\"order_id\": 42}'"}
          >
            Durable functions and workflows wait for events; they are kept for those that will wait.
          </Empty>
        }
      />
      {isNew && <Publish onClose={() => setNew(false)} />}
      {shown && (
        <Dialog title={shown.type} wide onClose={() => setShown(null)}>
          <p className="small muted">
            {shown.source} · {shown.event_id}
          </p>
          <Tree value={shown.data} />
        </Dialog>
      )}
    </Page>
  );
}

function Publish({ onClose }: { onClose: () => void }) {
  const [type, setType] = useState("");
  const [text, setText] = useState("");
  const publish = useChange("post", "/events", (answer) => {
    const resumed = ("items" in answer ? answer.items : [answer]).reduce((sum, one) => sum + one.resumed, 0);
    return `Published; ${plural(resumed, "execution")} waited for it`;
  });
  const data = readJson(text);
  return (
    <Dialog
      title="Publish an event"
      submit="Publish"
      busy={publish.isPending}
      disabled={!type.trim() || data.wrong}
      onClose={onClose}
      onSubmit={() =>
        publish.mutate({ body: { type: type.trim(), data: data.value } as never }, { onSuccess: onClose })
      }
    >
      <TextField label="Type" hint="Such as order.paid" required value={type} onChange={setType} />
      <TextField
        label="Data, as JSON"
        wrong={data.wrong ? "This is not JSON." : undefined}
        rows={6}
        value={text}
        onChange={setText}
      />
    </Dialog>
  );
}
