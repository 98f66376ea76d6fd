// A worker in plain Node (18 or newer), by docs/reference/worker-protocol.md:
// DAYBELL_API_URL=http://… DAYBELL_API_KEY=dbk_… QUEUES=default node worker.mjs
import { randomUUID } from "node:crypto";
const tasks = {
  greet: async ({ name }) => `Hello, ${name}, from Node`,
  fail: async () => { throw new RangeError("no luck"); },
};
const { DAYBELL_API_URL: url = "http://127.0.0.1:8080", DAYBELL_API_KEY: key = "", QUEUES = "default" } = process.env;
const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
const queues = QUEUES.split(","), sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const leases = new Map(); // of the claims that this worker knows: the number of unfinished executions
const running = new Map(); // by execution: what stops it
let path = "", stopping = false;
async function send(verb, body) { // every request may be repeated as it is
  for (let pause = 0.2; ; pause = Math.min(5, pause * 2)) {
    const request = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = await fetch(`${url}/api/v1/leases${path}${verb}`, request).catch(() => null);
    const said = await answer?.json().catch(() => null);
    if (answer?.ok && said) return said;
    if (said?.code && answer.status < 500 && answer.status !== 429) throw new Error(`${said.code}: ${said.detail}`);
    await sleep(pause);
  }
}
async function run(lease_id, { execution_id, attempt, job, args }) {
  let end, stop = new AbortController(), began = Date.now();
  running.set(execution_id, stop);
  try {
    end = job in tasks
      ? { outcome: "succeeded", result: (await tasks[job](args, stop.signal)) ?? null }
      : { outcome: "released", delay: 60 }; // for a worker that knows it
  } catch (error) {
    end = { outcome: "failed", error: { type: error.name, message: error.message, traceback: error.stack } };
  }
  if (stop.signal.aborted) end = { outcome: "cancelled" };
  const result = { execution_id, attempt, lease_id, ...end, ran: (Date.now() - began) / 1000 };
  for (const { ruling } of (await send("/reports", { results: [result] })).items) console.error(execution_id, ruling);
  running.delete(execution_id);
  if (leases.set(lease_id, leases.get(lease_id) - 1).get(lease_id) === 0) leases.delete(lease_id);
}
async function renew() {
  const { status, cancel } = await send("/renew", { lease_ids: [...leases.keys()] });
  for (const { execution_id } of cancel) running.get(execution_id)?.abort();
  stopping ||= status === "draining";
}
const fatal = (error) => { console.error(error.message); process.exit(1); }; // others may have its work now
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => { stopping = true; });
path = `/${(await send("", { name: "node", queues, concurrency: 10 }).catch(fatal)).worker_id}`;
console.log("worker", path.slice(1));
setInterval(() => renew().catch(fatal), 5000); // a third of the lease
while (!stopping) {
  const limit = 10 - running.size, lease_id = randomUUID();
  if (limit === 0) { await sleep(0.05); continue; }
  leases.set(lease_id, 0); // known before the claim: a renewal gives back what it does not name
  const { executions, has_news } = await send("/claim", { lease_id, queues, limit, wait: 2 }).catch(fatal);
  if (executions.length) leases.set(lease_id, executions.length); else leases.delete(lease_id);
  for (const one of executions) run(lease_id, one).catch(fatal);
  if (has_news) await renew().catch(fatal);
}
while (running.size) await sleep(0.05);
await send("/drain", {}).then(() => process.exit(0), fatal);
