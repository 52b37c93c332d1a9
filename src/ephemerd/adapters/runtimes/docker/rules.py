"""The packet filter that keeps runners apart from each other, from the machine and from private networks. Pure.

One table of the store's own, for the bridges whose names begin with the store's prefix. It only refuses: what it
lets pass still has to pass every other table of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from ephemerd.adapters.runtimes.docker.reference import bridge_prefix

PRIVATE_4 = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
)
PRIVATE_6 = ("::/128", "::1/128", "::ffff:0:0/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8")


@dataclass(frozen=True, slots=True)
class Exceptions:
    """What runners may reach although it is private.

    allow   addresses and networks
    dns     name servers, on port 53 alone
    """

    allow: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()


def table_name(store: str) -> str:
    """Return the name of the store's table."""
    return f"ephemerd_{bridge_prefix(store)}"


def render(store: str, exceptions: Exceptions) -> str:
    """Return the file that puts the table in place of an earlier one, in one transaction."""
    name, runners = table_name(store), f'"{bridge_prefix(store)}*"'
    allow_4, allow_6 = _split(exceptions.allow)
    dns_4, dns_6 = _split(exceptions.dns)
    return f"""\
table inet {name}
delete table inet {name}
table inet {name} {{
{_set("private4", "ipv4_addr", PRIVATE_4)}
{_set("private6", "ipv6_addr", PRIVATE_6)}
{_set("allow4", "ipv4_addr", allow_4)}
{_set("allow6", "ipv6_addr", allow_6)}
{_set("dns4", "ipv4_addr", dns_4)}
{_set("dns6", "ipv6_addr", dns_6)}
  chain refuse {{
    counter
    meta l4proto tcp reject with tcp reset
    reject with icmpx type admin-prohibited
  }}
  chain allowed {{
    ip daddr @allow4 accept
    ip6 daddr @allow6 accept
    ip daddr @dns4 meta l4proto {{ tcp, udp }} th dport 53 accept
    ip6 daddr @dns6 meta l4proto {{ tcp, udp }} th dport 53 accept
  }}
  chain passing {{
    type filter hook forward priority -10; policy accept;
    oifname {runners} ct state established,related accept
    iifname {runners} oifname {runners} jump refuse
    oifname {runners} counter drop
    iifname {runners} jump allowed
    iifname {runners} ip daddr @private4 jump refuse
    iifname {runners} ip6 daddr @private6 jump refuse
  }}
  chain arriving {{
    type filter hook input priority -10; policy accept;
    iifname {runners} ct state established,related accept
    iifname {runners} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    iifname {runners} jump allowed
    iifname {runners} jump refuse
  }}
}}
"""


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    content = f" elements = {{ {listed} }}" if listed else ""
    return f"  set {name} {{ type {kind}; flags interval; auto-merge;{content} }}"


def _split(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    found: tuple[list[str], list[str]] = ([], [])
    for network in sorted({ip_network(each, strict=False) for each in addresses}, key=str):
        assert isinstance(network, IPv4Network | IPv6Network)
        found[network.version == 6].append(str(network))
    return found


def without_counts(listing: str) -> str:
    """Return a listing (`nft -j`) as a text that is equal for equal rules: no handles, no counters' values."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: None if key == "counter" else clean(each)
            for key, each in value.items()
            if key not in ("handle", "metainfo")
        }

    return json.dumps(clean(json.loads(listing)), sort_keys=True)
