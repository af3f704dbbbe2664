"""The connections of a server, looked after beside the HTTP library, which bounds their number and their headers alone.

One address could take all connections, and a client that never reads what it asked for keeps its own for ever. Both are
seen from outside: each connection is a file of this process. On Linux alone; other systems do not list them so.
"""

import contextlib
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

FILES = Path("/proc/self/fd")
LOOK_SECONDS = 0.5  # between two looks
MAX_OF_ADDRESS = 128  # connections of one address; of more, the oldest are closed
UNREAD_SECONDS = 30  # until a connection is closed whose client takes nothing of what was sent

Peer = tuple[str, int]  # the address and the port of a client


class Connections:
    """The connections to a port of this process. A thread looks at them until the process ends."""

    def __init__(self, port: int, proxies: Sequence[str] = ()) -> None:
        """Proxies, addresses or networks, may have any number of connections."""
        self.port = port
        self.proxies = [ip_network(proxy) for proxy in proxies]
        self._seen: dict[Peer, None] = {}  # the oldest first

    def watch(self) -> None:
        """Start the thread."""
        if FILES.is_dir():
            threading.Thread(target=self._look_for_ever, name="connections", daemon=True).start()

    def _look_for_ever(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Give new connections their time limit, and close the oldest ones of addresses that have too many."""
        peers: dict[Peer, None] = {}
        for peer, connection in self._open():
            peers[peer] = None
            if peer not in self._seen:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_SECONDS)
        self._seen = {peer: None for peer in self._seen if peer in peers} | peers
        of_address: dict[str, list[Peer]] = defaultdict(list)
        for peer in self._seen:
            of_address[peer[0]].append(peer)
        surplus = {
            peer
            for address, of_one in of_address.items()
            if len(of_one) > MAX_OF_ADDRESS and not self._is_proxy(address)
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
        return any(ip_address(address) in proxy for proxy in self.proxies)

    def _open(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yield each connection to the port: its client, and a copy of its socket, which is closed afterwards."""
        for file in list(FILES.iterdir()) if FILES.is_dir() else ():
            with contextlib.suppress(OSError), _copy_of_socket(int(file.name)) as connection:
                if connection.getsockname()[1:2] == (self.port,):
                    yield connection.getpeername()[:2], connection  # the one that listens has no peer: OSError


def _copy_of_socket(file: int) -> socket.socket:
    """A socket that this process has open, once more. Raises OSError if the file is no socket, or closed meanwhile."""
    copy = os.dup(file)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
