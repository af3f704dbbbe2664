"""Limits on connections that the HTTP library lacks: for each address, and for clients that do not read their answers.

The library limits the number of all connections and the size of headers. Without more, one address can hold every
connection, and a client that never reads keeps its connection for ever. A thread therefore lists the sockets of this
process in /proc/self/fd, which exists on Linux only. It closes the oldest connections of an address that has too many,
and sets a timeout for unread data (TCP_USER_TIMEOUT, tcp(7)) on each connection.
"""

import contextlib
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

from tapis.serving.limits import network_of_address
from tapis.system.addresses import plain_address

FILES = Path("/proc/self/fd")
LOOK_SECONDS = 0.5  # between two looks
MAX_OF_ADDRESS = 128  # connections of one address, or network of IPv6; of more, the oldest are closed
UNREAD_SECONDS = 30  # until the system closes a connection whose client reads nothing
RESERVED_FILES = 1000  # files that this process may open besides those of its connections

Peer = tuple[str, int]  # the address and the port of a client


class Connections:
    """The connections to a port of this process."""

    def __init__(self, port: int, max_connections: int, proxies: Sequence[str] = ()) -> None:
        """max_connections is the limit of the library; addresses and networks in proxies have no limit of their own."""
        self.port = port
        self.max_connections = max_connections
        self.proxies = [ip_network(proxy) for proxy in proxies]
        self._seen: dict[Peer, None] = {}  # the oldest first

    def watch(self) -> None:
        """Start a thread that calls `look` until the process ends. Does nothing on other systems than Linux."""
        if not FILES.is_dir():
            return
        import resource  # noqa: PLC0415 - Windows has none

        # With as many connections as files, `look` could open none itself.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.max_connections + RESERVED_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        threading.Thread(target=self._look_for_ever, name="connections", daemon=True).start()

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with contextlib.suppress(OSError):  # no file can be opened: try again
                self.look()

    def look(self) -> None:
        """Set the timeout of connections, and close the oldest ones of each address that has too many."""
        peers: dict[Peer, None] = {}
        for peer, connection in self._open():
            peers[peer] = None
            # At each look: a client may have connected again from the same port since the last one.
            with contextlib.suppress(OSError):  # it has ended
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_SECONDS)
        self._seen = {peer: None for peer in self._seen if peer in peers} | peers
        of_address: dict[str, list[Peer]] = defaultdict(list)
        for peer in self._seen:
            of_address[network_of_address(peer[0])].append(peer)
        surplus = {
            peer
            for of_one in of_address.values()
            if len(of_one) > MAX_OF_ADDRESS and not self._is_proxy(of_one[0][0])
            for peer in of_one[:-MAX_OF_ADDRESS]
        }
        if surplus:
            self.close(surplus)

    def close(self, peers: set[Peer] | None = None) -> None:
        """Close the connections of some clients; by default, of all."""
        for peer, connection in self._open():
            if peers is None or peer in peers:
                with contextlib.suppress(OSError):  # it has ended
                    connection.shutdown(socket.SHUT_RDWR)

    def _is_proxy(self, address: str) -> bool:
        return any(ip_address(plain_address(address)) in proxy for proxy in self.proxies)

    def _open(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yield each connection to the port: its client, and a copy of its socket, which is closed afterwards."""
        for file in list(FILES.iterdir()) if FILES.is_dir() else ():
            with contextlib.suppress(OSError), _copy_of_socket(int(file.name)) as connection:
                if connection.getsockname()[1:2] == (self.port,):
                    yield connection.getpeername()[:2], connection  # the one that listens has no peer: OSError


def _copy_of_socket(file: int) -> socket.socket:
    """Duplicate an open socket. Raises OSError if the file is no socket, or was closed meanwhile."""
    copy = os.dup(file)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
