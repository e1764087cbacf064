"""Files of the Go ESDB (customer.io): archives and streams, read through the interface of a segment, and written."""

from esformat.customerio.archive import Archive, ArchiveSpace
from esformat.customerio.file import open_file as open
from esformat.customerio.scan import Scan
from esformat.customerio.stream import Stream, StreamSpace
from esformat.customerio.writer import Writer, create, write

__all__ = ["Archive", "ArchiveSpace", "Scan", "Stream", "StreamSpace", "Writer", "create", "open", "write"]
