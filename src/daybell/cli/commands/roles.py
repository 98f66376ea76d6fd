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


def worker(
    context: typer.Context,
    app: AppName = None,
    queues: Queues = None,
    concurrency: Concurrency = 100,
    processes: Processes = 1,
    children: Children = None,
    max_jobs_per_process: MaxJobs = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Default: the app's.", show_default=False),
    ] = None,
    labels: Annotated[
        str,
        typer.Option("--labels", metavar="K=V,…", help="What to know it by.", show_default=False),
    ] = "",
    drain_timeout: Annotated[
        str,
        typer.Option(
            "--drain-timeout", metavar="DURATION", help="How long what runs may take when it stops."
        ),
    ] = "30s",
    name: WorkerName = None,
    prune: Prune = False,
    allow_command: AllowCommand = False,
    allow_private_http: AllowPrivateHttp = False,
    allow_env: AllowEnv = "",
    pass_env: PassEnv = "",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
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
        labels=labels,
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
    flags = role_flags(log_level, log_format, pool_size)
    run(context, partial(actions.worker.run_worker, request=request), database_url, flags)


def scheduler(
    context: typer.Context,
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
        actions.worker.run_scheduler, metrics_host=metrics_host, metrics_port=metrics_port
    )
    run(context, command, database_url, flags)


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
