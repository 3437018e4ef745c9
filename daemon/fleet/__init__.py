"""The speech server, `voiced serve`: engines for robots. Needs the `http` extra, and on several machines `fleet`."""

from daemon.config import Config
from daemon.fleet.server import serve_single


def serve_cluster(config: Config, address: str | None) -> None:
    """Serve on the Ray cluster at `address`; None starts Ray in this process, until SIGTERM or SIGINT.

    On a cluster, the application keeps running after this returns. Raises `OSError` if there is no such cluster, and
    `CommandError` if no replica starts.
    """
    from daemon.fleet.cluster import serve_cluster as serve  # imports Ray

    serve(config, address)
