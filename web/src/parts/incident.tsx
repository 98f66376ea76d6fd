/** The state and the subject of an incident. */

import { type Incident } from "../data/api.ts";
import { jobPath, Link } from "../data/router.tsx";

export const stateOf = (one: Incident) => (one.closed_at ? "closed" : one.acknowledged_at ? "acknowledged" : "open");

/** The subject of an incident: a job, its schedule after a slash, a queue, or something without a page. */
export function Subject({ one }: { one: Incident }) {
  const isQueue = one.subject.startsWith("queue ") || one.detail.includes(` in queue ${one.subject}`);
  if (isQueue)
    return (
      <Link className="strong cut" href="/queues">
        {one.subject}
      </Link>
    );
  if (one.subject.includes(" ")) return <span className="strong cut">{one.subject}</span>;
  return (
    <Link className="strong cut" href={`${jobPath(one.subject.split("/")[0] ?? "")}/why`}>
      {one.subject}
    </Link>
  );
}
