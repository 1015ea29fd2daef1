#!/bin/sh
# One RDMA device, rxe0 on eth0, and a wire to the other guest. This guest has 10.77.0.1 or 10.77.0.2.
ip link set eth0 mtu 4200
ip addr add "10.77.0.$((LAB_GUEST + 1))/24" dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
