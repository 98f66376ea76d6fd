/** The options of jobs. Written by `make web-types` from `core/options.py`. */

export interface JobOption {
  name: string;
  /** A text, one of the choices, true or false, a length of time, or a value that may be JSON. */
  type: "text" | "choice" | "flag" | "duration" | "value";
  choices: string[];
  meaning: string;
  unset: unknown;
}

export const OPTIONS: JobOption[] = [
  {"name": "shell", "type": "flag", "choices": [], "meaning": "Of a command: run its line by `sh -c`.", "unset": null},
  {"name": "env", "type": "value", "choices": [], "meaning": "Of a command: variables of its environment.", "unset": null},
  {"name": "calendar", "type": "value", "choices": [], "meaning": "Days on which it does not fire: {\"country\": \"DE\"}, and more in the guide.", "unset": null},
  {"name": "dst", "type": "value", "choices": [], "meaning": "The rule for times that a change of the clocks leaves out (`gap`) or repeats (`fold`).", "unset": null},
  {"name": "start_at", "type": "text", "choices": [], "meaning": "It does not fire before this time, or date in its zone.", "unset": null},
  {"name": "end_at", "type": "text", "choices": [], "meaning": "It does not fire after this time, or date in its zone.", "unset": null},
  {"name": "max_executions", "type": "value", "choices": [], "meaning": "The number of times that it fires, at most.", "unset": null},
  {"name": "jitter", "type": "duration", "choices": [], "meaning": "Each tick is up to this much later, to spread the load.", "unset": null},
  {"name": "description", "type": "text", "choices": [], "meaning": "A description for people.", "unset": ""},
  {"name": "queue", "type": "text", "choices": [], "meaning": "The queue in which its executions wait.", "unset": "default"},
  {"name": "priority", "type": "value", "choices": [], "meaning": "Its place in the queue: critical, high, normal (or medium), low.", "unset": "normal"},
  {"name": "retries", "type": "value", "choices": [], "meaning": "The number of tries after the first one failed.", "unset": 3},
  {"name": "backoff", "type": "value", "choices": [], "meaning": "The wait before each retry: \"exponential\", \"fixed\", or an object with base, factor, cap, delay, delays, jitter.", "unset": "exponential"},
  {"name": "timeout", "type": "duration", "choices": [], "meaning": "The longest time of one try; then it is stopped, and has failed.", "unset": null},
  {"name": "expires", "type": "duration", "choices": [], "meaning": "An execution that has not started this long after its time is skipped.", "unset": null},
  {"name": "max_crashes", "type": "value", "choices": [], "meaning": "An execution is dead once it has lost this many workers.", "unset": 3},
  {"name": "on_lost", "type": "choice", "choices": ["retry", "dead"], "meaning": "When its worker was lost: `retry` runs it again, `dead` leaves that to a person.", "unset": "retry"},
  {"name": "store_result", "type": "flag", "choices": [], "meaning": "Keep the value that it returns.", "unset": true},
  {"name": "user_id", "type": "text", "choices": [], "meaning": "Its owner in your own accounts; jobs are listed by it.", "unset": null},
  {"name": "overlap", "type": "choice", "choices": ["skip", "queue", "queue_all", "replace", "allow"], "meaning": "When the execution before has not ended: `skip` the new one, `queue` it (and skip a second), `queue_all`, `replace` the one before, or `allow` both.", "unset": null},
  {"name": "misfire", "type": "value", "choices": [], "meaning": "Missed ticks: `fire_once` runs the latest, `skip` none, `fire_all` each.", "unset": null},
  {"name": "misfire_limit", "type": "value", "choices": [], "meaning": "Of `fire_all`: this many ticks at most, the latest of them.", "unset": null},
  {"name": "misfire_within", "type": "duration", "choices": [], "meaning": "Of `fire_all`: no tick that is older.", "unset": null},
  {"name": "misfire_grace", "type": "duration", "choices": [], "meaning": "A tick that is later than this counts as missed.", "unset": null},
  {"name": "pause_after_failures", "type": "value", "choices": [], "meaning": "The job is paused after this many dead executions in a row.", "unset": null},
  {"name": "dependencies", "type": "value", "choices": [], "meaning": "Jobs that must have succeeded before it runs: with a schedule, their latest executions that were due at its time; without one, since it ran last, which fires it.", "unset": []},
  {"name": "on_dependency_failure", "type": "choice", "choices": ["wait", "skip", "run"], "meaning": "When a dependency has failed for good: `wait`, `skip` this time, or `run` all the same.", "unset": "wait"},
  {"name": "concurrency", "type": "value", "choices": [], "meaning": "How many of its executions run at a time: a number, or limits with a key (one for each value of an argument) or a name (shared by all jobs that use it).", "unset": []},
  {"name": "rate", "type": "value", "choices": [], "meaning": "How many of its executions start in a time, such as 100/m: no minute sees more. A limit may have a key, a name, a `burst` and a `cost`.", "unset": []},
  {"name": "on_full", "type": "choice", "choices": ["wait", "skip", "cancel_oldest", "keep_newest"], "meaning": "When a limit has no room: `wait`, `skip` the new one, `cancel_oldest` that runs, or `keep_newest`, which skips those that wait already.", "unset": "wait"},
  {"name": "share", "type": "value", "choices": [], "meaning": "Whose turns its executions take, such as `customer`: the keys of a queue take turns, whatever their backlogs. `true` is the user, several arguments are a tree, and an object also has `weights`.", "unset": null},
  {"name": "keep", "type": "value", "choices": [], "meaning": "How long its ended executions are kept: {\"succeeded\": \"1d\", \"dead\": \"90d\", \"logs\": \"7d\"}, or one time. The rest is as the tenant or the cluster keeps it, 30 days by default; a dead letter stays until a person decides.", "unset": {}},
  {"name": "debounce", "type": "value", "choices": [], "meaning": "A request waits until no other of its key came for this long. They are one execution, with the last arguments. {\"wait\": \"5s\", \"key\": \"account\"}: by an argument.", "unset": null},
  {"name": "max_wait", "type": "duration", "choices": [], "meaning": "Of `debounce`: it runs at the latest this long after the first.", "unset": null},
  {"name": "throttle", "type": "value", "choices": [], "meaning": "The number of requests of a key that run in any such time, `1/10m`. A request beyond it is answered with the latest execution. {\"rate\": \"1/10m\", \"key\": \"account\"}: by an argument.", "unset": null},
  {"name": "singleton", "type": "value", "choices": [], "meaning": "One execution of a key at a time takes requests: while it is `unfinished`, or while it is `running`; then one more may wait. `on_conflict` decides about the others. {\"scope\": \"running\", \"key\": \"account\"}: by an argument.", "unset": null},
  {"name": "on_conflict", "type": "choice", "choices": ["return", "replace", "cancel", "error"], "meaning": "Of `singleton`: `return` the execution in the way, `replace` it (which cancels it), `cancel` the new one, or `error`.", "unset": "return"},
  {"name": "cache_for", "type": "duration", "choices": [], "meaning": "A request with the same arguments as an execution that succeeded at most this long ago is answered with that one. Requests during the run are answered with the run.", "unset": null},
  {"name": "cache_key", "type": "text", "choices": [], "meaning": "Of `cache_for`: the arguments that count, as an argument's name, a dotted path or a template; by default all.", "unset": null},
  {"name": "cache_version", "type": "text", "choices": [], "meaning": "Of `cache_for`: another text makes earlier results invalid.", "unset": ""},
  {"name": "labels", "type": "value", "choices": [], "meaning": "Labels of the job, {\"team\": \"billing\"}, by which jobs are listed. They do not choose workers: `requires` does.", "unset": {}},
  {"name": "requires", "type": "value", "choices": [], "meaning": "Labels that a worker must have, {\"gpu\": \"a100\", \"zone\": [\"eu\", \"us\"]}: each with one of these values.", "unset": {}},
  {"name": "prefer", "type": "value", "choices": [], "meaning": "Labels of the workers that take it first; after five seconds any other may.", "unset": {}},
  {"name": "near", "type": "choice", "choices": ["parent"], "meaning": "With `parent`, the worker of the execution that enqueues it takes it first, if it can; after five seconds any other may.", "unset": null},
  {"name": "resources", "type": "value", "choices": [], "meaning": "The amounts that an execution uses of the resources of its worker, {\"gpu\": 1, \"memory\": \"4GB\"}. A worker takes no more than it has.", "unset": {}},
  {"name": "notifications", "type": "value", "choices": [], "meaning": "Messages about it: `on` is a list of dead (it has dead letters), succeeded and late (a time of its schedules is over without a success), `to` a list of addresses as `notify` takes them. Each is an alert rule in a short form.", "unset": []},
];
