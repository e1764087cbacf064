"""`aggregator serve`: serve a catalog over HTTP."""

from __future__ import annotations

import os
from pathlib import Path

import click

from aggregator import InvalidRequestError
from aggregator.base.gc_pause import gc_paused
from aggregator.storage.files.layout import OTHER_FILES, has_other_files

_EXAMPLES = """\b
Examples:
  aggregator serve data
  aggregator serve data --bind 0.0.0.0:3030 --tls-certificate server.pem --tls-key server.key
  aggregator serve data --set partition.retain.max_age=30d --set http.max_append_bytes=32MiB
  aggregator serve data --store s3://bucket/prefix --durability store
  aggregator serve standby --store s3://bucket/prefix --standby
  aggregator serve copy --follow http://127.0.0.1:3030 --bind 127.0.0.1:3031
  aggregator serve --config /etc/aggregator.toml --log-format json
  AGGREGATOR__http__bind=127.0.0.1:8080 aggregator serve data

Settings come from a file (--config, or aggregator.toml in the working directory, or plateau's files there and in /etc),
then from the environment (AGGREGATOR__http__max_page, PLATEAU__http__max_page), then from flags; the later ones win.
`aggregator serve --settings` lists them.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directory", type=click.Path(readable=False), required=False)
@click.option("--bind", metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:3030.")
@click.option("--config", type=click.Path(readable=False), metavar="FILE", help="A TOML or YAML file with settings.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Set any setting by its key. Repeatable.")
@click.option(
    "--durability", metavar="HOW", help="When to acknowledge: fsync (default), interval, interval:200ms, none, store."
)
@click.option("--store", metavar="ADDRESS", help="Store to copy log, manifest and segments to: s3://bucket/prefix.")
@click.option("--standby", is_flag=True, help="Follow the store, serve reads, and take over when its writer is gone.")
@click.option(
    "--tls-certificate", type=click.Path(readable=False), metavar="FILE", help="Speak TLS with this certificate."
)
@click.option("--tls-key", type=click.Path(readable=False), metavar="FILE", help="Private key of the certificate.")
@click.option(
    "--client-ca",
    type=click.Path(readable=False),
    metavar="FILE",
    help="Require client certificates signed by these CAs.",
)
@click.option("--syslog", metavar="HOST:PORT", help="Receive syslog messages at this address, over TCP and UDP.")
@click.option("--syslog-tls", metavar="HOST:PORT", help="Receive syslog messages at this address, over TLS.")
@click.option("--follow", metavar="URL", help="Copy the catalog of the server at URL, and serve it for reading.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of the server's own log.")
@click.option("--public", is_flag=True, help="Listen on a public address without requiring tokens.")
@click.option("--settings", "keys", is_flag=True, help="List the keys of all settings, and exit.")
def serve(directory: str | None, bind: str | None, config: str | None, pairs: tuple[str, ...], durability: str | None,
          store: str | None, standby: bool,
          tls_certificate: str | None, tls_key: str | None, client_ca: str | None, syslog: str | None,
          syslog_tls: str | None, follow: str | None, log_format: str | None, public: bool,
          keys: bool) -> None:  # fmt: skip
    """Serve the catalog in DIRECTORY, created if it does not exist, over HTTP until SIGTERM or Ctrl-C.

    Acknowledged events are on disk; open requests are finished before it stops. With --follow, serves a copy of another
    server's catalog: see `aggregator follow`.
    """
    with gc_paused():
        from aggregator.server import serve as run
        from aggregator.server.config import sources as keys_of

    if keys:
        width = max(map(len, keys_of.KEYS))
        for name, key in keys_of.KEYS.items():
            click.echo(f"{name:{width}}  {key.help}")
        return
    flags = {
        "data_path": directory, "http.bind": bind, "catalog.durability": durability, "syslog": syslog,
        "catalog.store": store, "catalog.standby": standby or None,
        "syslog_tls": syslog_tls, "follow.url": follow,
        "tls.certificate": tls_certificate, "tls.key": tls_key, "tls.client_ca": client_ca, "log.format": log_format,
        "http.public": public or None,
    }  # fmt: skip
    settings = keys_of.gather(Path(config) if config else None, Path.cwd(), os.environ, pairs, flags)
    if settings.data_path is None:
        raise InvalidRequestError("no directory was given", hint="aggregator serve DIRECTORY")
    if has_other_files(settings.data_path):
        click.echo(f"aggregator: {settings.data_path} {OTHER_FILES}", err=True)
    run(settings.data_path, settings)
