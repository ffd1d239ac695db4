"""Attacks of strangers on an engine that asks for keys, for attack_engine.py: connections in every state that they can be
in, and a flood of the data plane beside pushes from 40 ms away. Each takes attack_engine's Engine and gives a Counter."""
import collections
import json
import multiprocessing
import os
import queue
import select
import socket
import subprocess
import threading
import time
import urllib.request

KEY = "a key of thirty-two characters.."


def hold(port, text, count, end):
    """`count` connections that say `text` and no more, each made again when it ends; how many there were."""
    made, held, watch = 0, {}, select.poll()
    while time.monotonic() < end:
        while len(held) < count:
            connection = socket.socket()
            try:
                connection.connect(("127.0.0.1", port))
                connection.sendall(text)
            except OSError:
                connection.close()
                break
            held[connection.fileno()] = connection
            watch.register(connection, select.POLLIN)
            made += 1
        for descriptor, _ in watch.poll(20):
            try:
                ended = not held[descriptor].recv(65536)
            except OSError:
                ended = True
            if ended:
                watch.unregister(descriptor)
                held.pop(descriptor).close()
    return made


def strangers(text):
    """1300 connections of somebody without a key, from another process, for 8 seconds."""
    def attack(engine):
        process = multiprocessing.Process(target=hold, args=(engine.port, text, 1300, time.monotonic() + 8))
        process.start()
        process.join()
        return collections.Counter(["held"])
    return attack


def knock(port, end):
    """As fast as one thread can: a new connection, while the oldest of 300 ends."""
    kept = collections.deque()
    while time.monotonic() < end:
        connection = socket.socket()
        try:
            connection.connect(("127.0.0.1", port))
        except OSError:
            connection.close()
            continue
        kept.append(connection)
        if len(kept) > 300:
            kept.popleft().close()


class Far:
    """A way to a port of this machine that takes 20 ms, and as long back."""

    def __init__(self, port):
        self.to = port
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listening.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    @staticmethod
    def carry(source, sink):
        on_the_way = queue.Queue()

        def deliver():
            while True:
                due, data = on_the_way.get()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)
                except OSError:
                    return
                if not data:
                    return

        threading.Thread(target=deliver, daemon=True).start()
        data = b"first"
        while data:
            try:
                data = source.recv(1 << 20)
            except OSError:
                data = b""
            on_the_way.put((time.monotonic() + 0.02, data))


def far_flood(engine):
    request = urllib.request.Request(f"http://127.0.0.1:{engine.port}/model_info", headers=engine.headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        port = json.load(answer)["tandem"]["data_port"]
    far = Far(port)
    flood = multiprocessing.Process(target=knock, args=(port, time.monotonic() + 60))
    flood.start()
    pushed = collections.Counter()
    for _ in range(4):
        push = subprocess.run(
            [os.path.join(os.path.dirname(engine.program), "tandem-sync"), "push", "--model", engine.model, "--to",
             f"tcp://127.0.0.1:{far.port}", "--deadline", "20"], env={**os.environ, "TANDEM_API_KEY": KEY},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=80, check=False)
        pushed["pushed" if push.returncode == 0 else push.stdout.strip().splitlines()[-1][-60:]] += 1
    flood.terminate()
    flood.join()
    return pushed


# name, attack, answers that are as they should be
OPEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
KEYED = [("silence", strangers(b""), {"held"}), ("half-headers", strangers(OPEN + b"X: y"), {"held"}),
         ("open-bodies", strangers(OPEN + b"Content-Length: 1000\r\n\r\nxx"), {"held"}),
         ("unknown-routes", strangers(OPEN.replace(b"health", b"nothing") + b"\r\n"), {"held"}),
         ("wrong-keys", strangers(OPEN.replace(b"health", b"model_info") + b"x-api-key: guess\r\n\r\n"), {"held"}),
         ("open-probes", strangers(OPEN.replace(b"health", b"health_generate") + b"\r\n"), {"held"}),
         ("far-flood", far_flood, {"pushed"})]
