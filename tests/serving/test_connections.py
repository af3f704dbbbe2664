"""Connections are shared among addresses, and end if nobody reads what was sent."""

import socket
import struct
import sys
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from conftest import eventually

from tapis.serving import connections
from tapis.serving.connections import MAX_OF_ADDRESS, Connections, Peer

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not list the connections of a process"
)


class Server:
    """A listening socket, its clients, and their connections."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.port = int(listener.getsockname()[1])
        self.sockets: list[socket.socket] = []

    def connect(self, address: str = "127.0.0.1", port: int = 0) -> tuple[socket.socket, socket.socket]:
        """A client from an address, and its connection."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it leaves its port at once
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.bind((address, port))
        client.connect(("127.0.0.1", self.port))
        connection, _ = self.listener.accept()
        self.sockets += [client, connection]
        return client, connection


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        server = Server(listener)
        yield server
        for one in server.sockets:
            one.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False


def test_of_too_many_connections_of_an_address_the_oldest_are_closed(server: Server) -> None:
    other, _ = server.connect("127.0.0.2")
    watched = Connections(server.port, 1000, proxies=["127.0.0.3"])
    clients = []
    for _ in range(MAX_OF_ADDRESS + 3):
        clients.append(server.connect()[0])
        watched.look()
    for _ in range(MAX_OF_ADDRESS + 3):
        server.connect("127.0.0.3")  # of a proxy
    watched.look()
    assert [is_closed(client) for client in (*clients[:4], clients[-1], other)] == [True] * 3 + [False] * 3
    assert not any(is_closed(client) for client in server.sockets[-10::2])
    watched.close()
    assert is_closed(other) and is_closed(clients[-1])


def test_the_addresses_of_a_network_of_ipv6_share_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Connections(1, 1000, proxies=["2001:db8:0:2::/64"])
    peers = [(f"2001:db8:0:{network}::{i:x}", 9) for network in (1, 2) for i in range(MAX_OF_ADDRESS + 2)]
    monkeypatch.setattr(watched, "_open", lambda: iter([(peer, Mock()) for peer in peers]))
    closed: set[Peer] = set()
    monkeypatch.setattr(watched, "close", closed.update)
    watched.look()
    assert closed == set(peers[:2])


def test_a_proxy_of_ipv4_is_one_also_where_the_server_listens_on_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Connections(1, 1000, proxies=["10.0.0.1"])
    peers = [(f"::ffff:10.0.0.{end}", port) for end in (1, 2) for port in range(MAX_OF_ADDRESS + 2)]
    monkeypatch.setattr(watched, "_open", lambda: iter([(peer, Mock()) for peer in peers]))
    closed: set[Peer] = set()
    monkeypatch.setattr(watched, "close", closed.update)
    watched.look()
    assert closed == {("::ffff:10.0.0.2", port) for port in range(2)}


def test_only_connections_to_the_port_are_looked_at(server: Server) -> None:
    client, connection = server.connect()
    Connections(server.port + 1, 1000).close()
    Connections(server.port + 1, 1000).look()
    assert not is_closed(client)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


def test_a_client_that_does_not_read_loses_its_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 1)
    _, connection = server.connect()
    Connections(server.port, 1000).look()
    connection.setblocking(False)

    def has_ended() -> bool:
        try:
            connection.send(b"x" * 100_000)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    eventually(has_ended, 20)


def test_a_client_that_connects_again_from_the_same_port_has_the_timeout_too(server: Server) -> None:
    watched = Connections(server.port, 1000)
    port = 0
    for _ in range(2):
        client, connection = server.connect(port=port)
        watched.look()
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * connections.UNREAD_SECONDS
        port = client.getsockname()[1]
        client.close()
        connection.close()


def test_looking_leaves_no_file_open(server: Server) -> None:
    server.connect()
    watched = Connections(server.port, 1000)
    before = len(list(connections.FILES.iterdir()))
    for _ in range(20):
        watched.look()
    assert len(list(connections.FILES.iterdir())) == before


def test_the_process_may_open_more_files_than_its_connections(server: Server) -> None:
    """Otherwise as many connections as files would stop `look`, too."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        Connections(server.port + 1, 300).watch()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(300 + connections.RESERVED_FILES, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
