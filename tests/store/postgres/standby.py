"""A server that follows another one, and can take its place."""

from tests.postgres import Postgres, read_lines


class Standby(Postgres):
    """A streaming replica of a server that runs; `with` starts it."""

    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        super().__init__(version=primary.version)  # pyright: ignore[reportArgumentType]

    def _make_data(self) -> None:
        # -R has it begin as a replica; all that is written meanwhile comes along.
        self._run("pg_basebackup", *self._primary._where(), "-D", self.data, "-R", "-X", "stream",
                  "-c", "fast", "--no-sync")  # fmt: skip

    def promote(self) -> None:
        """Take writes from now on; returns when it does."""
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def _is_ready(self) -> bool:
        lines = read_lines(self.data / "postmaster.pid")
        is_up = len(lines) >= 8 and lines[7].strip() in ("ready", "standby")
        return is_up and lines[0] == str(self.pid)
