"""What ordinary Python programs ask of the kernel, in one go. Prints "fine" at the end."""

import asyncio
import concurrent.futures
import ctypes
import mmap
import multiprocessing
import os
import pathlib
import select
import shutil
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time


def square(n):
    return n * n


async def spawn():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    return out


def main():
    os.chdir(tempfile.mkdtemp())

    # processes and threads
    assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
    assert subprocess.check_output("echo a | tr a b", shell=True) == b"b\n"
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(square, range(10))) == 285
    assert asyncio.run(spawn()) == b"hi\n"
    os.close(os.pidfd_open(os.getpid()))

    # sockets
    a, b = socket.socketpair()
    a.send(b"x")
    assert b.recv(1) == b"x"
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    with ssl.create_default_context().wrap_socket(client, server_hostname="x", do_handshake_on_connect=False):
        peer.close()
    unix = socket.socket(socket.AF_UNIX)
    unix.bind("sock")
    unix.listen()
    fds = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(fds[0], [b"m"], [0])
    assert socket.getaddrinfo("localhost", 80)
    socket.if_nameindex()

    # files
    p = pathlib.Path("file")
    p.write_text("hello")
    for mode in (0o600, 0o755, 0o777):
        p.chmod(mode)
    os.mkdir("d", 0o1777)
    os.mkfifo("fifo")
    os.symlink("file", "link")
    os.link("file", "hard")
    shutil.copy2("file", "copy")
    shutil.copytree("d", "d2")
    with tarfile.open("t.tar", "w") as tar:
        tar.add("file")
    with tarfile.open("t.tar") as tar:
        tar.extractall("out")
    assert stat.S_IMODE(os.stat("out/file").st_mode) == 0o777
    with tempfile.TemporaryFile() as f:
        f.write(b"y" * 4096)
        f.flush()
        with mmap.mmap(f.fileno(), 4096) as m:
            assert m[0:1] == b"y"
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.close(fd)

    db = sqlite3.connect("db")
    db.execute("create table t(x)")
    db.execute("insert into t values (1)")
    db.commit()

    # signals, polls, terminals
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    poll = select.epoll()
    poll.register(a, select.EPOLLIN)
    poll.poll(0)
    main_end, guest_end = os.openpty()
    os.write(guest_end, b"z")
    assert os.read(main_end, 1) == b"z"
    os.get_terminal_size(main_end)
    os.sched_getaffinity(0)
    os.getrandom(8)
    os.memfd_create("m")
    event = threading.Event()
    threading.Timer(0, event.set).start()
    assert event.wait(60)
    time.clock_gettime(time.CLOCK_MONOTONIC)
    ctypes.CDLL(None).getpid()
    print("fine")


if __name__ == "__main__":
    sys.exit(main())
