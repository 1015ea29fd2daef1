#!/bin/sh
# Two RDMA devices in one guest, which are two hosts to each other: rxa (10.78.0.1 on the interface va) and
# rxb (10.78.0.2 on vb). Their packets cross a virtual Ethernet link, so loss, delay and a link that is down
# apply to them. A single device would hand its packets to itself.
#
# network_pair.sh [routes]   With `routes`: only the routes, which are gone after an interface was down.
#
# Both ends are in one network namespace, because rxe has no other. The kernel would take the other end's
# address for its own. Routes by rules, in front of the table of local addresses, send these packets over the
# link. A program that binds no address gets the one at its end.
routes() {
  ip route replace 10.78.0.2 dev va src 10.78.0.1 table 101
  ip route replace 10.78.0.1 dev vb src 10.78.0.2 table 102
}
if [ "${1:-}" = routes ]; then
  routes
  exit
fi
ip link add va type veth peer name vb
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
for device in va vb; do
  ip link set $device mtu 4200 up  # RDMA packets of 4096 bytes.
  echo 0 > /proc/sys/net/ipv4/conf/$device/rp_filter
  echo 1 > /proc/sys/net/ipv4/conf/$device/accept_local  # The sender's address is this host's, too.
done
ip addr add 10.78.0.1/32 dev va
ip addr add 10.78.0.2/32 dev vb
routes
# Without a link these packets have no way, in place of the one within the host.
ip route add unreachable default metric 1000 table 101
ip route add unreachable default metric 1000 table 102
ip rule add pref 100 lookup local
ip rule del pref 0
ip rule add pref 10 to 10.78.0.2 iif lo lookup 101  # Packets of this host.
ip rule add pref 10 to 10.78.0.1 iif lo lookup 102
ip rule add pref 11 from 10.78.0.1 to 10.78.0.2 oif va lookup 101  # RDMA devices ask with their interface.
ip rule add pref 11 from 10.78.0.2 to 10.78.0.1 oif vb lookup 102
rdma link add rxa type rxe netdev va
rdma link add rxb type rxe netdev vb
