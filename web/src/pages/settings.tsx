/** Settings by role: keys, names of secrets, tenants with quotas, the audit log. */

import { lazy, useState } from "react";
import { type Answer, call, useChange, useGet, useList } from "../data/api.ts";
import { count } from "../data/format.ts";
import { useFilter } from "../data/router.tsx";
import { session, useCan, useIsAtLeast } from "../data/session.ts";
import { useStore } from "../data/store.ts";
import { toast } from "../data/toast.ts";
import { Button, Command, Copy, Field, Search, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { Card, Empty, Fact, Notice, Page, Tabs } from "../parts/page.tsx";
import { Status, Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief, Tree } from "../parts/tree.tsx";
import { Keys } from "../keyboard.tsx";

type Key = Answer<"get", "/keys">["items"][number];
type Secret = Answer<"get", "/secrets">["items"][number];
type Tenant = Answer<"get", "/tenants">["items"][number];
type Entry = Answer<"get", "/audit">["items"][number];

const Rules = lazy(() => import("./alerts.tsx").then((page) => ({ default: page.Rules })));

export default function SettingsPage({ tab }: { tab: string }) {
  const isAdmin = useIsAtLeast("admin");
  const isSuper = useIsAtLeast("superadmin");
  const tabs: [string, string][] = [["Session", "/settings"]];
  if (isAdmin)
    tabs.push(
      ["Keys", "/settings/keys"],
      ["Secrets", "/settings/secrets"],
      ["Alert rules", "/settings/alerts"],
      ["Audit log", "/settings/audit"],
    );
  if (isSuper) tabs.push(["Tenants", "/settings/tenants"]);
  const at = tabs.find(([, href]) => href === (tab ? `/settings/${tab}` : "/settings"))?.[0] ?? "";
  return (
    <Page title="Settings" cli={tab ? `daybell ${tab} list` : "daybell --help"}>
      <Tabs tabs={tabs} at={at} />
      {at === "Session" && <SessionCard />}
      {at === "Keys" && <KeyList />}
      {at === "Secrets" && <Secrets />}
      {at === "Alert rules" && <Rules />}
      {at === "Audit log" && <Audit />}
      {at === "Tenants" && <Tenants />}
      {!at && <Notice>This takes a key with another role.</Notice>}
    </Page>
  );
}

function SessionCard() {
  const mine = useStore(session);
  const status = useGet("/status", { every: 10_000 });
  return (
    <>
      <Card title="You">
        <dl className="grid facts">
          <Fact name="Tenant">{mine?.tenant}</Fact>
          <Fact name="Role">
            {mine?.role}
            {mine?.read_only && ", on a server that refuses changes"}
          </Fact>
          <Fact name="Key">{mine?.name ?? "none is needed on this machine"}</Fact>
          <Fact name="Session ends">
            <Time at={mine?.expires_at} />
          </Fact>
          <Fact name="Allowed">{mine?.actions.join(", ")}</Fact>
        </dl>
      </Card>
      <Card title="Server">
        <dl className="grid facts">
          <Fact name="Version">{mine?.version}</Fact>
          <Fact name="Store's clock">
            <Time at={status.data?.now} as="short" />
          </Fact>
          {status.data?.leaders.map((one) => (
            <Fact key={one.role} name={`Leader of ${one.role}`}>
              <span className="mono small">{one.holder_id.slice(-8)}</span>, until <Time at={one.until} />
            </Fact>
          ))}
        </dl>
      </Card>
      <Card title="Keyboard">
        <Keys />
      </Card>
    </>
  );
}

const ROLES = ["viewer", "operator", "admin", "superadmin", "worker"] as const;

function KeyList() {
  const list = useList<Key>("/keys");
  const [asks, setAsks] = useFilter("do");
  const isNew = asks === "new";
  const setNew = (on: boolean) => setAsks(on ? "new" : "");
  const [gone, setGone] = useState<Key | null>(null);
  const revoke = useChange("post", "/keys/{id}/revoke", () => "The key is revoked; its sessions end within 5 seconds");
  const columns: Column<Key>[] = [
    { name: "Name", width: "minmax(110px, 1fr)", cell: (one) => <span className="strong cut">{one.name}</span> },
    { name: "Role", width: "92px", cell: (one) => one.role },
    { name: "Token", width: "110px", from: 760, cell: (one) => <span className="mono small faint">{one.hint}…</span> },
    {
      name: "Limited to",
      width: "minmax(100px, 1fr)",
      from: 1100,
      cell: (one) => (
        <span className="cut small muted">
          {[...(one.jobs ?? []), ...(one.queues ?? []), ...(one.actions ?? [])].join(", ") || "–"}
        </span>
      ),
    },
    { name: "Used", width: "90px", from: 640, right: true, cell: (one) => <Time at={one.used_at} /> },
    { name: "Expires", width: "90px", from: 900, right: true, cell: (one) => <Time at={one.expires_at} /> },
    {
      name: "",
      width: "80px",
      right: true,
      cell: (one) =>
        one.revoked_at ? (
          <Status state="cancelled" bare />
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
          New key
        </Button>
      </div>
      <Listing
        label="Keys"
        list={list}
        columns={columns}
        keyOf={(one) => one.key_id}
        empty={<Empty icon="key" title="There is no key yet" command="daybell keys create ci --role operator" />}
      />
      {isNew && <NewKey onClose={() => setNew(false)} />}
      {gone && (
        <Confirm
          title={`Revoke ${gone.name}?`}
          submit="Revoke it"
          busy={revoke.isPending}
          onClose={() => setGone(null)}
          onConfirm={() => revoke.mutate({ path: { id: gone.key_id } }, { onSettled: () => setGone(null) })}
        >
          It opens nothing any more. This cannot be undone.
        </Confirm>
      )}
    </>
  );
}

function NewKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<(typeof ROLES)[number]>("viewer");
  const [expires, setExpires] = useState("");
  const make = useChange("post", "/keys");
  if (make.data)
    return (
      <Dialog title={`The key ${make.data.name}`} onClose={onClose}>
        <Notice tone="warn">It is shown this once. Put it where it is needed, now.</Notice>
        <Command text={make.data.token} />
      </Dialog>
    );
  return (
    <Dialog
      title="New key"
      submit="Make it"
      busy={make.isPending}
      disabled={!name.trim()}
      onClose={onClose}
      onSubmit={() => make.mutate({ body: { name: name.trim(), role, ...(expires && { expires }) } as never })}
    >
      <TextField label="Name" required value={name} onChange={setName} />
      <Field label="Role">
        {(id) => (
          <select
            id={id}
            className="select"
            value={role}
            onChange={(event) => setRole(event.target.value as typeof role)}
          >
            {ROLES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
      <TextField label="Expires" hint="Such as 30d. Empty: never" value={expires} onChange={setExpires} />
    </Dialog>
  );
}

function Secrets() {
  const list = useList<Secret>("/secrets");
  const can = useCan();
  const [isNew, setNew] = useState(false);
  const [gone, setGone] = useState<string | null>(null);
  const remove = useChange("delete", "/secrets/{name}", (answer) => `${answer.name} is deleted`);
  const columns: Column<Secret>[] = [
    { name: "Name", width: "minmax(120px, 1fr)", cell: (one) => <span className="strong mono cut">{one.name}</span> },
    { name: "Version", width: "64px", right: true, cell: (one) => one.version },
    {
      name: "Set by",
      width: "minmax(100px, 1fr)",
      from: 760,
      cell: (one) => <span className="cut muted">{one.author}</span>,
    },
    { name: "Set", width: "92px", right: true, cell: (one) => <Time at={one.updated_at} /> },
    {
      name: "",
      width: "80px",
      right: true,
      cell: (one) =>
        can("secrets") && (
          <Button size="small" kind="danger" onClick={() => setGone(one.name)}>
            Delete
          </Button>
        ),
    },
  ];
  return (
    <>
      <div className="toolbar">
        {can("secrets") && (
          <Button icon="plus" onClick={() => setNew(true)}>
            Set a secret
          </Button>
        )}
        <span className="small faint">Values can be set here and read by workers only.</span>
      </div>
      <Listing
        label="Secrets"
        list={list}
        columns={columns}
        keyOf={(one) => one.name}
        empty={<Empty icon="key" title="There is no secret yet" command="daybell secrets set warehouse" />}
      />
      {isNew && <SetSecret onClose={() => setNew(false)} />}
      {gone && (
        <Confirm
          title={`Delete ${gone}?`}
          submit="Delete it"
          busy={remove.isPending}
          onClose={() => setGone(null)}
          onConfirm={() => remove.mutate({ path: { name: gone } }, { onSettled: () => setGone(null) })}
        >
          Jobs that refer to it fail until it is set again.
        </Confirm>
      )}
    </>
  );
}

function SetSecret({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const set = useChange("put", "/secrets/{name}", (answer) => `${answer.name} is version ${answer.version} now`);
  return (
    <Dialog
      title="Set a secret"
      submit="Set it"
      busy={set.isPending}
      disabled={!name.trim() || !value}
      onClose={onClose}
      onSubmit={() => set.mutate({ path: { name: name.trim() }, body: { value } as never }, { onSuccess: onClose })}
    >
      <TextField label="Name" mono required value={name} onChange={setName} />
      <TextField
        label="Value"
        hint="It is sealed by the server, and never shown again"
        type="password"
        autoComplete="new-password"
        required
        value={value}
        onChange={setValue}
      />
      {set.error && <Notice>{set.error.message}</Notice>}
    </Dialog>
  );
}

function Tenants() {
  const list = useList<Tenant>("/tenants");
  const [edited, setEdited] = useState<Tenant | "new" | null>(null);
  const limit = (value: number | null) => (value === null ? <span className="faint">none</span> : count(value));
  const columns: Column<Tenant>[] = [
    { name: "Tenant", width: "minmax(120px, 1fr)", cell: (one) => <span className="strong cut">{one.name}</span> },
    { name: "Jobs", width: "80px", right: true, cell: (one) => limit(one.quotas.jobs) },
    { name: "Queued", width: "80px", right: true, cell: (one) => limit(one.quotas.queued) },
    { name: "Per minute", width: "80px", from: 640, right: true, cell: (one) => limit(one.quotas.per_minute) },
    { name: "Running", width: "80px", from: 640, right: true, cell: (one) => limit(one.quotas.running) },
    {
      name: "",
      width: "80px",
      right: true,
      cell: (one) => (
        <Button size="small" onClick={() => setEdited(one)}>
          Quotas
        </Button>
      ),
    },
  ];
  return (
    <>
      <div className="toolbar">
        <Button icon="plus" onClick={() => setEdited("new")}>
          New tenant
        </Button>
      </div>
      <Listing
        label="Tenants"
        list={list}
        columns={columns}
        keyOf={(one) => one.name}
        empty={<Empty icon="settings" title="There is one tenant" command="daybell tenants create acme" />}
      />
      {edited && <TenantDialog tenant={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
    </>
  );
}

const QUOTAS = ["jobs", "queued", "per_minute", "running"] as const;
const QUOTA_NAMES = {
  jobs: "Jobs",
  queued: "Executions in queues",
  per_minute: "Enqueued per minute",
  running: "Running at a time",
};

function TenantDialog({ tenant, onClose }: { tenant: Tenant | null; onClose: () => void }) {
  const [name, setName] = useState("");
  const [texts, setTexts] = useState(() =>
    Object.fromEntries(QUOTAS.map((one) => [one, tenant?.quotas[one]?.toString() ?? ""])),
  );
  const save = useChange("patch", "/tenants/{name}", (answer) => `The quotas of ${answer.name} are set`);
  const make = useChange("post", "/tenants", (answer) => `${answer.name} is created; make a key for it`);
  const quotas = Object.fromEntries(QUOTAS.map((one) => [one, texts[one] ? Number(texts[one]) : null]));
  const error = save.error ?? make.error;
  const send = () =>
    tenant
      ? save.mutate({ path: { name: tenant.name }, body: quotas as never }, { onSuccess: onClose })
      : make.mutate({ body: { name: name.trim(), ...quotas } as never }, { onSuccess: onClose });
  return (
    <Dialog
      title={tenant ? `Quotas of ${tenant.name}` : "New tenant"}
      submit={tenant ? "Save" : "Create it"}
      busy={save.isPending || make.isPending}
      disabled={!tenant && !name.trim()}
      onClose={onClose}
      onSubmit={send}
    >
      {!tenant && <TextField label="Name" hint="It cannot be changed later" required value={name} onChange={setName} />}
      <div className="grid two tight">
        {QUOTAS.map((one) => (
          <TextField
            key={one}
            label={QUOTA_NAMES[one]}
            hint="Empty: no limit"
            inputMode="numeric"
            pattern="[0-9]*"
            value={texts[one]}
            onChange={(value) => setTexts({ ...texts, [one]: value })}
          />
        ))}
      </div>
      {error && <Notice>{error.message}</Notice>}
    </Dialog>
  );
}

function Audit() {
  const [action, setAction] = useFilter("action");
  const [target, setTarget] = useFilter("target");
  const list = useList<Entry>("/audit", { action, target });
  const [shown, setShown] = useState<Entry | null>(null);
  const verify = async () => {
    const found = await call("get", "/audit/verify", { query: {} });
    toast(
      found.broken
        ? `Entry ${found.broken.number}: ${found.broken.problem}`
        : `${count(found.entries)} entries hold together`,
      found.broken ? "bad" : "ok",
    );
  };
  const columns: Column<Entry>[] = [
    { name: "When", width: "96px", cell: (one) => <Time at={one.at} /> },
    {
      name: "Action",
      width: "minmax(110px, 1fr)",
      cell: (one) => (
        <button type="button" className="button link cut" onClick={() => setShown(one)}>
          {one.action}
        </button>
      ),
    },
    { name: "Target", width: "minmax(110px, 1.4fr)", cell: (one) => <span className="cut">{one.target}</span> },
    {
      name: "By",
      width: "minmax(100px, 1.4fr)",
      from: 760,
      cell: (one) => <span className="cut muted">{one.actor}</span>,
    },
    {
      name: "From",
      width: "110px",
      from: 1100,
      cell: (one) => <span className="cut faint mono small">{one.source}</span>,
    },
    {
      name: "Change",
      width: "minmax(100px, 2fr)",
      from: 1300,
      cell: (one) => <span className="cut faint mono small">{brief(one.after)}</span>,
    },
  ];
  return (
    <>
      <div className="toolbar">
        <Search label="Action" placeholder="Action: job, or job.update" value={action} onChange={setAction} />
        <Search label="Target" placeholder="Target, exactly" value={target} onChange={setTarget} />
        <Button icon="check" onClick={() => void verify()}>
          Verify the chain
        </Button>
      </div>
      <Listing
        label="Audit log"
        list={list}
        columns={columns}
        keyOf={(one) => one.entry_id}
        empty={
          <Empty icon="executions" title="Nothing has been changed yet" command="daybell audit list">
            Every change by a person or a key is recorded here.
          </Empty>
        }
      />
      {shown && (
        <Dialog title={`${shown.action} ${shown.target}`} wide onClose={() => setShown(null)}>
          <div className="row small muted">
            {shown.actor}
            <Copy text={shown.entry_id} label="Copy the id" />
          </div>
          <div className="grid two">
            <Card title="Before">
              <Side value={shown.before} />
            </Card>
            <Card title="After">
              <Side value={shown.after} />
            </Card>
          </div>
        </Dialog>
      )}
    </>
  );
}

const Side = ({ value }: { value: unknown }) =>
  value === null || value === undefined ? <span className="faint">nothing</span> : <Tree value={value} />;
