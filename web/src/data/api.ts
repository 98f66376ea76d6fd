/** The client of the HTTP API: typed requests, and the queries that the pages share. */

import { keepPreviousData, QueryClient, useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { isFrozen, live } from "./live.ts";
import { type components, type paths } from "./schema.ts";
import { session } from "./session.ts";
import { useStore } from "./store.ts";
import { toast } from "./toast.ts";
import { follow, streamed, topicOf } from "./topics.ts";

type Schemas = components["schemas"];
export type Alert = Schemas["Alert"];
export type BulkCounts = Schemas["Counts"];
export type Execution = Schemas["Execution"];
export type ExecutionDetail = Schemas["ExecutionDetail"];
export type Incident = Schemas["Incident"];
export type Job = Schemas["Job"];
export type JobVersion = Schemas["ListedVersion"];
export type LogLine = Schemas["LogLine"];
export type NewJob = Schemas["NewJob"];
export type Queue = Schemas["Queue"];
export type Remedy = Schemas["Remedy"];
export type RunNode = Schemas["RunNode"];
export type Stats = Schemas["Stats"];
export type Worker = Schemas["Worker"];
export type WorkflowRun = Schemas["WorkflowRun"];

export const BASE = "/api/v1";
const POLL_MS = 4000;

type Method = "get" | "post" | "put" | "patch" | "delete";
type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never;
}[keyof paths];
type Operation<M extends Method, P> = P extends keyof paths ? (paths[P] extends Record<M, infer O> ? O : never) : never;
type JsonOf<R> = R extends { content: { "application/json": infer T } } ? T : never;
export type Answer<M extends Method, P> = Operation<M, P> extends { responses: infer R } ? JsonOf<R[keyof R]> : never;
type QueryOf<M extends Method, P> = Operation<M, P> extends { parameters: { query?: infer Q } } ? Q : never;
type BodyOf<M extends Method, P> =
  Operation<M, P> extends { requestBody?: { content: { "application/json": infer B } } } ? B : undefined;

interface Options<M extends Method, P> {
  path?: Record<string, string>;
  query?: QueryOf<M, P>;
  body?: BodyOf<M, P>;
  signal?: AbortSignal;
}

/** What the API refused, as it says it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly fields: { field: string; message: string }[] = [],
  ) {
    super(detail);
  }
}

export function address(path: string, values: Record<string, string> = {}, query: object = {}) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ""));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    if (Array.isArray(value)) for (const one of value) search.append(name, String(one));
    else if (typeof value === "object") for (const [key, one] of Object.entries(value)) search.append(key, String(one));
    else search.append(name, String(value));
  }
  const text = search.toString();
  return BASE + filled + (text && `?${text}`);
}

export async function send(method: string, url: string, body?: unknown, signal?: AbortSignal) {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      signal,
      headers: {
        ...(method === "GET" ? {} : proof()),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    live.lost();
    throw new ApiError(0, "unreachable", "The server does not answer. It is asked again.");
  }
  const text = await response.text();
  const content: unknown = text ? parse(text) : null;
  if (response.ok) return content;
  if (response.status === 401) live.refused();
  const problem = (content ?? {}) as Partial<Schemas["Problem"]>;
  throw new ApiError(
    response.status,
    problem.code ?? String(response.status),
    problem.detail ?? `The server answered ${response.status}.`,
    problem.errors ?? [],
  );
}

/** Sent with every change: a page of another site does not know it. */
function proof(): Record<string, string> {
  const token = session.get()?.csrf_token;
  return token ? { "X-CSRF-Token": token } : {};
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export async function call<M extends Method, P extends PathOf<M>>(
  method: M,
  path: P,
  { path: values, query, body, signal }: Options<M, P> = {},
): Promise<Answer<M, P>> {
  const url = address(path as string, values, query as object);
  const sent = method === "post" && body === undefined ? {} : body;
  return (await send(method.toUpperCase(), url, sent, signal)) as Answer<M, P>;
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      retry: (count, error) => !(error instanceof ApiError && error.status >= 400) && count < 2,
      refetchOnWindowFocus: () => !isFrozen(),
      placeholderData: keepPreviousData,
    },
  },
});

const poll = (every: number | false) => () =>
  every === false || isFrozen() || document.hidden ? (false as const) : every;

/** The stream keeps this answer current, if it can; tells whether it does now. */
function useTopic(topic: string | null, queryKey: readonly unknown[], isList: boolean) {
  const isStreamed = useStore(streamed).has(topic ?? "");
  useEffect(() => (topic === null ? undefined : follow(topic, queryKey, isList)), [topic, isList]);
  return isStreamed;
}

/** One answer: from the stream, or asked for again while the page is looked at. */
export function useGet<P extends PathOf<"get">>(
  path: P,
  options: Omit<Options<"get", P>, "body" | "signal"> & { every?: number | false; on?: boolean; live?: boolean } = {},
) {
  const { every = POLL_MS, on = true, live = false, ...rest } = options;
  const queryKey = [path, rest.path ?? null, rest.query ?? null] as const;
  const topic =
    live && on && every !== false ? topicOf(address(path as string, rest.path, rest.query as object)) : null;
  const isStreamed = useTopic(topic, queryKey, false);
  return useQuery({
    queryKey,
    queryFn: ({ signal }) => call("get", path, { ...rest, signal } as Options<"get", P>),
    refetchInterval: poll(isStreamed ? false : every),
    enabled: on,
  });
}

interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** A list by cursors. While more than its first page is loaded, it stays as it is. */
export function useList<T>(
  path: PathOf<"get">,
  query: object = {},
  on = true,
  values?: Record<string, string>,
  every: number | false = POLL_MS,
) {
  const queryKey = [path, values ?? null, query, "list"];
  const topic = on ? topicOf(address(path as string, values, { limit: 100, ...query })) : null;
  const isStreamed = useTopic(topic, queryKey, true);
  const list = useInfiniteQuery({
    queryKey,
    queryFn: async ({ pageParam, signal }) =>
      (await send(
        "GET",
        address(path, values, { limit: 100, ...query, cursor: pageParam }),
        undefined,
        signal,
      )) as Page<T>,
    initialPageParam: null as string | null,
    getNextPageParam: (last: Page<T>) => last.next_cursor,
    refetchInterval: (one) => (isStreamed || (one.state.data?.pages.length ?? 0) > 1 ? false : poll(every)()),
    enabled: on,
  });
  const rows = list.data?.pages.flatMap((page) => page.items) ?? [];
  const more = () => {
    if (list.hasNextPage && !list.isFetching) void list.fetchNextPage();
  };
  const reset = () => queries.resetQueries({ queryKey });
  const read = list.data?.pages.length ?? 0;
  return { ...list, rows, more, reset, read, isPaged: read > 1 };
}

/** A change: it says how it went, and all that is shown is asked for again. */
export function useChange<M extends Exclude<Method, "get">, P extends PathOf<M>>(
  method: M,
  path: P,
  said?: (answer: Answer<M, P>) => string,
  /** The operation that takes it back, with the same path and an empty body. */
  undo?: PathOf<"post">,
) {
  const back = (values?: Record<string, string>) =>
    undo &&
    (() =>
      void send("POST", address(undo, values), {}).then(
        () => queries.invalidateQueries(),
        (error: Error) => toast(error.message, "bad"),
      ));
  return useMutation({
    mutationFn: (options: Options<M, P>) => call(method, path, options),
    onSuccess: (answer, options) => {
      if (said) toast(said(answer), "ok", back(options.path));
      void queries.invalidateQueries();
    },
    onError: (error) => toast(error.message, "bad"),
  });
}
