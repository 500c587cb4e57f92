"""Reductions of gloo between hosts whose packets arrive late.

Each rank has a network namespace of its own, and this process hands packets on from one to the other. One
line: ranks, milliseconds of a packet there and back, those of a reduction, and their ratio, which is 2 (P - 1)
for a ring in which each sender waits until its receiver is ready. As root of a Linux machine::

    unshare --net --mount python benchmarks/network.py
"""

import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import torch
import torch.distributed as dist

RANKS, ONE_WAY = (2, 3, 4), (0.005, 0.02, 0.04)  #: seconds of a packet
NUMBERS, REPEATS, SKIPPED = 4_000, 40, 5
TUNSETIFF, PACKETS = 0x400454CA, 0x0001 | 0x1000  #: of linux/if_tun.h: packets without a header


def device(i):
    """A file of the packets that rank `i` sends, in a namespace of its own."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", f"late{i}".encode(), PACKETS))
    within = f"ip netns exec r{i} ip"
    address = f"{within} addr add 10.9.0.{i + 1}/24 dev late{i}"
    up = f"{within} link set late{i} up mtu 60000 && {within} link set lo up"
    command = f"ip netns add r{i} && ip link set late{i} netns r{i} && {address} && {up}"
    subprocess.run(command, shell=True, check=True)
    return file


def hand_on(files, seconds):
    """Hand packets on to the rank of their address, in time."""
    waiting, n = [], 0
    while True:
        until = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
        for file in select.select(files, [], [], until)[0]:
            packet = os.read(file, 65_535)
            to = packet[19] - 1  # the last byte of an IPv4 address
            if packet[0] >> 4 == 4 and 0 <= to < len(files):
                heapq.heappush(waiting, (time.monotonic() + seconds(), n := n + 1, to, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(files[waiting[0][2]], heapq.heappop(waiting)[3])


def rank():
    """Time reductions, from the arrival of the last rank."""
    dist.init_process_group("gloo")
    tensor, seconds = torch.zeros(NUMBERS, dtype=torch.float64), []
    for _ in range(REPEATS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - began)
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, seconds)
    if dist.get_rank() == 0:
        both_ways, found = 2.0 * float(sys.argv[1]), np.median(np.min(parts, 0)[SKIPPED:])
        line = f"{1e3 * both_ways:5.0f} {1e3 * found:6.1f} {found / both_ways:5.2f}"
        print(f"{len(parts)} {line}", flush=True)
    dist.destroy_process_group()


def main():
    mount = "mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs none /run/netns"
    subprocess.run(f"ip link set lo up && {mount}", shell=True, check=True)
    files, now = [device(i) for i in range(max(RANKS))], [0.0]
    threading.Thread(target=hand_on, args=(files, lambda: now[0]), daemon=True).start()
    address = {"MASTER_ADDR": "10.9.0.1", "MASTER_PORT": "29555"}
    for size in RANKS:
        for now[0] in ONE_WAY:
            processes = []
            for i in range(size):
                own = {"RANK": str(i), "WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": f"late{i}"}
                command = ["ip", "netns", "exec", f"r{i}", sys.executable, __file__, str(now[0])]
                environment = {**os.environ, **address, **own}
                processes.append(subprocess.Popen(command, env=environment))
            for process in processes:
                process.wait()


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else rank()
