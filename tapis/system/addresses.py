"""Addresses of networks, as the flags of a server name them and as its clients have them."""

import ipaddress
import socket


def plain_address(address: str) -> str:
    """Return an address of IPv4 without its form in IPv6, ::ffff:192.0.2.7, and any other text as it is.

    A socket that listens on :: gives clients of IPv4 in this form.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or address)


def is_wildcard(host: str) -> bool:
    """Return whether an address to listen on stands for all interfaces: 0.0.0.0, ::, their other forms, or nothing."""
    if not host:
        return True
    try:
        numeric = str(socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)[0][4][0])
    except (OSError, UnicodeError):  # a name
        return False
    return ipaddress.ip_address(plain_address(numeric)).is_unspecified


def is_network(text: str) -> bool:
    """Return whether a text is an address or a network."""
    try:
        return bool(ipaddress.ip_network(text))
    except ValueError:
        return False
