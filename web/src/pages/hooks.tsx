/** The webhooks of a job: each is an address whose requests become events that fire it. */

import { useState } from "react";
import { type Answer, useChange, useList } from "../data/api.ts";
import { Button, Command, Field, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { Empty, Notice } from "../parts/page.tsx";
import { Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";

type Hook = Answer<"get", "/jobs/{name}/hooks">["items"][number];

export function Hooks({ job }: { job: string }) {
  const list = useList<Hook>("/jobs/{name}/hooks", {}, true, { name: job });
  const [isNew, setNew] = useState(false);
  const [gone, setGone] = useState<Hook | null>(null);
  const revoke = useChange("post", "/jobs/{name}/hooks/{hook}/revoke", (answer) => `${answer.name} is revoked`);
  const columns: Column<Hook>[] = [
    { name: "Name", width: "minmax(110px, 1fr)", cell: (one) => <span className="strong cut">{one.name}</span> },
    { name: "Token", width: "100px", from: 760, cell: (one) => <span className="mono small faint">{one.hint}…</span> },
    { name: "Signed", width: "90px", from: 640, cell: (one) => one.signature ?? <span className="tone-warn">no</span> },
    {
      name: "Event",
      width: "minmax(110px, 1fr)",
      from: 900,
      cell: (one) => <span className="cut mono small">{one.event}</span>,
    },
    { name: "Used", width: "90px", right: true, cell: (one) => <Time at={one.used_at} /> },
    { name: "Expires", width: "90px", from: 900, right: true, cell: (one) => <Time at={one.expires_at} /> },
    {
      name: "",
      width: "86px",
      right: true,
      cell: (one) =>
        one.revoked_at ? (
          <span className="faint">revoked</span>
        ) : (
          <Button size="small" kind="danger" onClick={() => setGone(one)}>
            Revoke
          </Button>
        ),
    },
  ];
  return (
    <>
      <div className="toolbar">
        <Button icon="plus" onClick={() => setNew(true)}>
          New webhook
        </Button>
      </div>
      <Listing
        label="Webhooks"
        list={list}
        columns={columns}
        keyOf={(one) => one.hook_id}
        empty={
          <Empty icon="events" title="It has no webhook">
            A webhook is an address that others post to; each request fires the job.
          </Empty>
        }
      />
      {isNew && <NewHook job={job} onClose={() => setNew(false)} />}
      {gone && (
        <Confirm
          title={`Revoke ${gone.name}?`}
          submit="Revoke it"
          busy={revoke.isPending}
          onClose={() => setGone(null)}
          onConfirm={() =>
            revoke.mutate({ path: { name: job, hook: gone.hook_id } }, { onSettled: () => setGone(null) })
          }
        >
          Its address answers no more. This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

function NewHook({ job, onClose }: { job: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const [signature, setSignature] = useState("");
  const [secret, setSecret] = useState("");
  const make = useChange("post", "/jobs/{name}/hooks");
  if (make.data)
    return (
      <Dialog title={`Webhook ${make.data.name}`} onClose={onClose}>
        <p>This address is shown once: its sender posts to it.</p>
        <Command text={window.location.origin + make.data.path} />
      </Dialog>
    );
  const body = { name: name.trim(), ...(signature && { signature, secret: secret.trim() }) };
  return (
    <Dialog
      title="New webhook"
      submit="Make it"
      busy={make.isPending}
      disabled={!name.trim()}
      onClose={onClose}
      onSubmit={() => make.mutate({ path: { name: job }, body: body as never })}
    >
      <TextField label="Name" hint="Such as its sender" required value={name} onChange={setName} />
      <Field label="Signature">
        {(id) => (
          <select id={id} className="select" value={signature} onChange={(event) => setSignature(event.target.value)}>
            <option value="">not signed</option>
            {["github", "stripe", "standard", "hmac"].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
      {signature && (
        <TextField
          label="Secret"
          hint="The name of the secret that signs"
          mono
          required
          value={secret}
          onChange={setSecret}
        />
      )}
      {make.error && <Notice>{make.error.message}</Notice>}
    </Dialog>
  );
}
