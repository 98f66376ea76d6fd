"""`daybell dev`, `worker`, `scheduler` and `server`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import (
    DatabaseUrl,
    LogFormat,
    LogLevel,
    PoolSize,
    Tenant,
    database_flag,
    role_flags,
    run,
)
from daybell.core.units import parse_duration

AppName = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The app: module:app, module, or path/to/file.py. Default: DAYBELL_APP; else, only"
        " jobs without code are run.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes one that is free.")]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="A name that it is reached by, besides --host; may be given again.",
        show_default=False,
    ),
]

HasDashboard = Annotated[
    bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard at /, too.")
]


def _named(queues: str | None) -> str | None:
    """An empty value is one that was lost on its way, and does not mean all."""
    if queues is not None and not queues.strip():
        raise typer.BadParameter("--queues is empty; name queues, or leave it out")
    return queues


Queues = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="NAMES",
        help="Such as mail=3,default: names, with a weight if it is not 1."
        " Default: the queues of the app's tasks.",
        callback=_named,
        show_default=False,
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=100_000, help="How many run at a time.")
]

Processes = Annotated[
    int,
    typer.Option(
        "--processes", min=1, max=1000, help="How many processes, each with that concurrency."
    ),
]
Children = Annotated[
    int | None,
    typer.Option(
        "--children",
        min=1,
        max=1000,
        help='How many child processes each has for tasks with isolation="process".'
        " Default: one per processor.",
        show_default=False,
    ),
]
WorkerName = Annotated[
    str | None, typer.Option("--name", help="Default: this machine's name.", show_default=False)
]
MaxJobs = Annotated[
    int | None,
    typer.Option(
        "--max-jobs-per-process",
        min=1,
        metavar="N",
        help="Start a process afresh when it has run so many Python tasks, against leaks.",
        show_default=False,
    ),
]

Labels = Annotated[
    str,
    typer.Option(
        "--labels", metavar="K=V,…", help="Labels that jobs may require.", show_default=False
    ),
]
Resources = Annotated[
    str,
    typer.Option(
        "--resources",
        metavar="K=N,…",
        help="What jobs may use: gpu=2,memory=64GB.",
        show_default=False,
    ),
]
AllowCommand = Annotated[
    bool,
    typer.Option(
        "--allow-command",
        help="Run commands, too: who may create jobs can then run any program here.",
    ),
]
AllowPrivateHttp = Annotated[
    bool,
    typer.Option("--allow-private-http", help="Let requests go to addresses that are not public."),
]
# As it is on this machine alone, unless somebody says otherwise.
DevAllowCommand = Annotated[
    bool | None,
    typer.Option(
        "--allow-command/--no-allow-command",
        help="Run commands, too. Default: yes, if --host is this machine.",
        show_default=False,
    ),
]
DevAllowPrivateHttp = Annotated[
    bool | None,
    typer.Option(
        "--allow-private-http/--no-allow-private-http",
        help="Let requests go to addresses that are not public. Default: yes, if --host is this"
        " machine.",
        show_default=False,
    ),
]
AllowEnv = Annotated[
    str,
    typer.Option(
        "--allow-env",
        metavar="NAMES",
        help="Variables that commands may set although they are refused, such as PATH.",
        show_default=False,
    ),
]
PassEnv = Annotated[
    str,
    typer.Option(
        "--pass-env",
        metavar="NAMES",
        help="Variables of this process that its commands see, such as HTTPS_PROXY.",
        show_default=False,
    ),
]

Prune = Annotated[
    bool,
    typer.Option("--prune", help="Remove jobs that have left the app's code and have schedules."),
]


WatchRoots = Annotated[
    list[str] | None,
    typer.Option(
        "--watch-root",
        metavar="NAME=PATH",
        help="A folder that schedules of files name, as in incoming/*.csv; may be repeated.",
        show_default=False,
    ),
]


def dev(
    context: typer.Context,
    app: AppName = None,
    demo: Annotated[bool, typer.Option("--demo", help="Run the packaged example jobs.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    allowed_host: AllowedHost = None,
    dashboard: HasDashboard = True,
    concurrency: Concurrency = 100,
    queues: Queues = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again whenever the app's code changes.")
    ] = False,
    prune: Prune = False,
    allow_command: DevAllowCommand = None,
    allow_private_http: DevAllowPrivateHttp = None,
    allow_env: AllowEnv = "",
    pass_env: PassEnv = "",
    watch_root: WatchRoots = None,
    drain_timeout: Annotated[str, typer.Option("--drain-timeout", hidden=True)] = "10s",
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
    pool_size: PoolSize = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run everything on this machine, in one process."""
    options = actions.dev.DevOptions(
        host=host,
        port=port,
        allowed_hosts=actions.startup.allowed_names(host, allowed_host or ()),
        has_dashboard=dashboard,
        concurrency=concurrency,
        queues=queues or "",
        drain_timeout=parse_duration(drain_timeout, what="drain timeout"),
        parent=parent,
        prune=prune,
        allow_command=allow_command,
        allow_private_http=allow_private_http,
        allow_env=allow_env,
        pass_env=pass_env,
        watch_roots=tuple(watch_root or ()),
    )
    command = actions.dev.run_with_reload if reload else actions.dev.dev
    flag = database_flag(context, database_url)
    command = partial(command, spec=app, demo=demo, flag=flag, options=options)
    run(context, command, database_url, role_flags(log_level, log_format, pool_size))


MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve /metrics, /healthz and /readyz there; each of several processes takes the next"
        " port. Default: not served.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", metavar="ADDRESS", help="Where --metrics-port listens.")
]


WorkerTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Default: the app's.", show_default=False),
]
WorkerTenants = Annotated[
    str | None,
    typer.Option(
        "--tenants",
        metavar="NAMES",
        help="Serve several tenants, as in a,b; or '*' for all, also later ones. They take turns,"
        " by the weights of daybell tenants update.",
        show_default=False,
    ),
]
DrainTimeout = Annotated[
    str,
    typer.Option(
        "--drain-timeout", metavar="DURATION", help="How long what runs may take when it stops."
    ),
]
WorkerApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="Work by way of this server, without access to the database. Default:"
        " DAYBELL_API_URL, if no database is given.",
        show_default=False,
    ),
]
WorkerApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="A key with the role worker. Default, and not shown to other users of this machine:"
        " DAYBELL_API_KEY.",
        show_default=False,
    ),
]


def worker(
    context: typer.Context,
    app: AppName = None,
    queues: Queues = None,
    concurrency: Concurrency = 100,
    processes: Processes = 1,
    children: Children = None,
    max_jobs_per_process: MaxJobs = None,
    tenant: WorkerTenant = None,
    tenants: WorkerTenants = None,
    labels: Labels = "",
    resources: Resources = "",
    drain_timeout: DrainTimeout = "30s",
    name: WorkerName = None,
    prune: Prune = False,
    allow_command: AllowCommand = False,
    allow_private_http: AllowPrivateHttp = False,
    allow_env: AllowEnv = "",
    pass_env: PassEnv = "",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
    api_url: WorkerApiUrl = None,
    api_key: WorkerApiKey = None,
    pool_size: PoolSize = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run the executions of an app, or of jobs without code."""
    request = actions.worker.WorkerRequest(
        spec=app,
        flag=database_flag(context, database_url),
        queues=queues or "",
        concurrency=concurrency,
        processes=processes,
        children=children,
        max_jobs_per_process=max_jobs_per_process,
        tenant=tenant,
        tenants=tenants,
        labels=labels,
        resources=resources,
        drain_timeout=drain_timeout,
        name=name,
        parent=parent,
        prune=prune,
        allow_command=allow_command,
        allow_private_http=allow_private_http,
        allow_env=allow_env,
        pass_env=pass_env,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )
    flags: dict[str, object] = {**role_flags(log_level, log_format, pool_size)}
    # One before the name of the command counts, too.
    context.obj["api_url"] = api_url or context.obj["api_url"]
    flags |= {"api_key": api_key} if api_key is not None else {}
    run(context, partial(actions.worker.run_worker, request=request), database_url, flags)


def scheduler(
    context: typer.Context,
    watch_root: WatchRoots = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    pool_size: PoolSize = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Fire schedules, and look after the store."""
    flags = role_flags(log_level, log_format, pool_size)
    command = partial(
        actions.worker.run_scheduler,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        watch_roots=watch_root or (),
    )
    run(context, command, database_url, flags)


# `daybell bridge`: messages of a broker as events.

Broker = Annotated[str, typer.Argument(metavar="BROKER", help="nats, kafka, rabbitmq or redis.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="A subject, topic, queue or stream to read; may be repeated.",
        show_default=False,
    ),
]
ReceiveAt = Annotated[
    str | None,
    typer.Option(
        "--receive",
        metavar="HOST:PORT",
        help="Send the outgoing events that a subscription posts here to the broker.",
        show_default=False,
    ),
]
SendTo = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="NAME",
        help="The subject, topic, queue or stream of --receive.",
        show_default=False,
    ),
]
BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="DAYBELL_BRIDGE_URL",
        metavar="URL",
        help="The broker. Default: on this machine, at its usual port.",
        show_default=False,
    ),
]
EventName = Annotated[
    str | None,
    typer.Option(
        "--event",
        metavar="NAME",
        help="The name of the events. Default: that of a CloudEvent, else the topic.",
        show_default=False,
    ),
]
Group = Annotated[
    str, typer.Option("--group", metavar="NAME", help="Bridges that share the messages.")
]
Stream = Annotated[
    str | None,
    typer.Option(
        "--stream", metavar="NAME", help="The stream of JetStream (NATS).", show_default=False
    ),
]
IdPath = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="PATH",
        help="The id of a message: a dotted path in its data.",
        show_default=False,
    ),
]
Idle = Annotated[
    str,
    typer.Option(
        "--idle",
        metavar="DURATION",
        help="Read a message again that a bridge has left for so long (Redis).",
    ),
]


def bridge(
    context: typer.Context,
    broker: Broker,
    topic: Topics = None,
    receive: ReceiveAt = None,
    to: SendTo = None,
    url: BrokerUrl = None,
    event: EventName = None,
    group: Group = "daybell",
    stream: Stream = None,
    id_path: IdPath = None,
    idle: Idle = "30s",
    tenant: Tenant = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Pass messages of a broker on as events, or events to it."""
    request = actions.bridge.BridgeRequest(
        broker=broker,
        topics=topic or [],
        receive=receive,
        to=to,
        url=url,
        event=event,
        group=group,
        stream=stream,
        id_path=id_path,
        tenant=tenant,
        idle=parse_duration(idle, what="idle"),
    )
    run(
        context,
        partial(actions.bridge.run_bridge, request=request),
        database_url,
        role_flags(log_level, log_format, None),
    )


def server(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    allowed_host: AllowedHost = None,
    dashboard: HasDashboard = True,
    tls_cert: Annotated[
        str | None,
        typer.Option(
            "--tls-cert", metavar="FILE", help="A certificate: speak TLS.", show_default=False
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(
            "--tls-key", metavar="FILE", help="The certificate's key.", show_default=False
        ),
    ] = None,
    forwarded_allow_ips: Annotated[
        str,
        typer.Option(
            "--forwarded-allow-ips",
            metavar="ADDRESSES",
            help="Proxies that are believed when they say whom they ask for.",
            show_default=False,
        ),
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse all changes.", show_default=False)
    ] = False,
    pool_size: PoolSize = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the HTTP API."""
    request = actions.server.ServeRequest(
        host=host,
        port=port,
        allowed_hosts=actions.startup.allowed_names(host, allowed_host or ()),
        has_dashboard=dashboard,
        tls_cert=tls_cert,
        tls_key=tls_key,
        forwarded_allow_ips=forwarded_allow_ips,
        read_only=read_only,
        flag=database_flag(context, database_url),
    )
    flags = role_flags(log_level, log_format, pool_size)
    run(context, partial(actions.server.serve, request=request), database_url, flags)
