#!/usr/bin/env python3
"""Attacks tandem-engine over HTTP as a broken or hostile client would, and measures what others feel meanwhile.

Each attack meets a fresh engine. Beside it, two honest clients ask for /health and for a small /generate all the time.
An attack misses its bar when the answer is not the expected one, when the engine's memory grows by more than
--grow-mib over what it was at rest, or when an honest client fails or waits longer than --p99-ms. Attacks of strangers
meet an engine that asks for keys, which the honest clients have; beside `far-flood` weights are pushed four times, from
40 ms away.
Exit code: 0 when every bar holds, 1 when one is missed, 2 for bad usage. Linux, Python 3 alone.
"""
import argparse
import collections
import http.client
import json
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from attack_strangers import KEY, KEYED

MIB = 1 << 20
SMALL = '{"input_ids":[1,2],"sampling_params":{"max_new_tokens":4}}'


def write_model(folder):
    """A Llama of some 100 KB with a tokenizer of bytes: what is attacked is the front, not the arithmetic."""
    hidden, inner, vocab = 32, 64, 258
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": hidden,
              "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32",
              "tie_word_embeddings": True, "hidden_act": "silu"}
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for name, shape in (("input_layernorm", [hidden]), ("post_attention_layernorm", [hidden]),
                        ("mlp.gate_proj", [inner, hidden]), ("mlp.up_proj", [inner, hidden]),
                        ("mlp.down_proj", [hidden, inner]), *((f"self_attn.{p}_proj", [hidden] * 2) for p in "qkvo")):
        shapes[f"model.layers.0.{name}.weight"] = shape
    numbers, header, data = random.Random(1), {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if len(shape) == 1 else numbers.gauss(0, 0.1) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    # GPT-2's letters for bytes.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                   "use_regex": True},
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file)


class Engine:
    """tandem-engine on a free port, watched: it is killed when its memory passes stop_at_gib."""

    def __init__(self, program, model, stop_at_gib, keyed):
        self.program, self.model = program, model
        self.headers = {"x-api-key": KEY} if keyed else {}
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, "serve", "--model", model, "--listen", "127.0.0.1:0", "--kv-tokens",
                                         "8192", *(["--api-key", KEY] if keyed else [])],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.log.seek(0)
            sys.exit(f"{program} did not start: {self.log.read().decode(errors='replace')}")
        self.port = int(line.rsplit(":", 1)[1])
        self.most = stop_at_gib * 1024
        self.stopped = False
        self.peak = 0.0
        threading.Thread(target=self.watch, daemon=True).start()

    def memory(self):  # MiB
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            sizes = [line.split()[1] for line in file if line.startswith(("VmRSS", "VmSwap"))]
        return sum(int(size) for size in sizes) / 1024

    def watch(self):
        while self.process.poll() is None:
            try:
                size = self.memory()
            except OSError:
                return
            self.peak = max(self.peak, size)
            if size > self.most:
                self.stopped = True
                self.process.kill()
            time.sleep(0.01)

    def close(self):
        self.process.kill()
        self.process.wait()

    def connect(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask(self, method, path, body=None, headers=None, timeout=30):
        """The answer's status; a word when there is none."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
            try:
                connection.request(method, path, body, headers or {})
            except OSError:  # it may have answered before it read all of the body
                if connection.sock is None:
                    return "closed"
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status
        except TimeoutError:
            return "no answer"
        except (OSError, http.client.HTTPException):
            return "closed"

    def post(self, body, path="/generate", timeout=30):
        return self.ask("POST", path, body, timeout=timeout)


class Honest(threading.Thread):
    """Asks one thing again and again, and keeps how long each took and what failed."""

    def __init__(self, engine, method, path, body=None):
        super().__init__(daemon=True)
        self.engine, self.question = engine, (method, path, body)
        self.seconds, self.failed, self.done, self.begun = [], collections.Counter(), False, 0.0

    def run(self):
        while not self.done:
            self.begun = time.monotonic()
            status = self.engine.ask(*self.question, headers=self.engine.headers, timeout=20)
            if self.done:
                return  # the engine is being stopped
            self.seconds.append(time.monotonic() - self.begun)
            if status != 200:
                self.failed[status] += 1
            time.sleep(0.01)

    def stop(self):
        self.done = True
        if self.is_alive():
            self.seconds.append(time.monotonic() - self.begun)  # what still waits counts with what it has waited

    def p99_ms(self):
        times = sorted(self.seconds)
        return 1000 * times[min(int(len(times) * 0.99), len(times) - 1)]


def together(count, work):
    """What `count` clients at once get, as a Counter."""
    answers, lock = collections.Counter(), threading.Lock()

    def client():
        answer = work()
        with lock:
            answers[answer] += 1

    threads = [threading.Thread(target=client, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def one(answer):
    return collections.Counter([answer])


def shared_stop_ids(engine):
    return one(engine.post(json.dumps({"input_ids": [[1]] * 65536, "sampling_params": {
        "stop_token_ids": [0] * 100000, "max_new_tokens": 1}})))


def long_rid(engine):
    return one(engine.post(json.dumps({"rid": "A" * 1000000, "input_ids": [1], "sampling_params": {
        "n": 65536, "max_new_tokens": 0}})))


def chunk_extension(engine):
    with engine.connect() as connection:
        connection.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;")
        try:
            for _ in range(8192):
                connection.sendall(b"a" * 65536)
        except OSError:
            return one("closed")
    return one("512 MiB taken")


def half_bodies(engine):
    def client():
        try:
            with engine.connect() as connection:
                connection.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n")
                for _ in range(1023):
                    connection.sendall(b" " * 65536)
                time.sleep(3)
                return "held"
        except OSError:
            return "closed"
    return together(64, client)


def whole_bodies(engine):
    body = b" " * (64 * MIB)
    return together(64, lambda: engine.post(body, timeout=80))


def many_values(engine):
    return one(engine.post('{"input_ids":[' + "{}," * (21 * MIB) + "{}]}"))


def long_texts(engine):
    body = json.dumps({"text": "tokenise me " * (5 * MIB), "sampling_params": {"max_new_tokens": 1}})
    return together(64, lambda: engine.post(body, timeout=80))


def idle_connections(engine):
    connections, refused = [], 0
    for _ in range(10000):
        try:
            connections.append(engine.connect(timeout=5))
        except OSError:
            refused += 1
    time.sleep(3)
    for connection in connections:
        connection.close()
    return collections.Counter({"connected": len(connections), **({"refused": refused} if refused else {})})


def slow_readers(engine):
    """Each asks for an answer of some 30 MB and reads a byte a second."""
    body = json.dumps({"input_ids": [1], "return_logprob": True,
                       "sampling_params": {"n": 8192, "max_new_tokens": 64, "ignore_eos": True}}).encode()
    end = time.monotonic() + 25

    def client():
        try:
            with engine.connect() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" %
                                   len(body) + body)
                first = b""
                while time.monotonic() < end and len(first) < 12:
                    first += connection.recv(12 - len(first)) or b"closed......"
                while time.monotonic() < end and connection.recv(1):
                    time.sleep(1)
                return int(first[9:12]) if first.startswith(b"HTTP") else "closed"
        except TimeoutError:
            return "waits"
        except OSError:
            return "closed"
    return together(32, client)


def slow_writers(engine):
    """200 send a header and 200 a body, a byte a second."""
    texts = [b"POST /generate HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1000,
             b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b" " * 1000]
    connections = [(engine.connect(), texts[i % 2]) for i in range(400)]
    closed = 0
    for connection, text in connections:
        connection.sendall(text[:-1000])
    for second in range(20):
        for connection, text in list(connections):
            try:
                connection.sendall(text[second:second + 1])
            except OSError:
                connections.remove((connection, text))
                closed += 1
        time.sleep(1)
    return collections.Counter({"open": len(connections), "closed": closed})


def large_requests(engine):
    body = '{"input_ids":[1],"sampling_params":{"n":65536,"max_new_tokens":20,"ignore_eos":true}}'
    return together(20, lambda: engine.post(body, timeout=10))


def checksums(engine):
    return together(500, lambda: engine.ask("GET", "/weights_checker"))


def release_by_get(engine):
    return one(engine.ask("GET", "/release_memory_occupation"))


def foreign_host(engine):
    return one(engine.ask("GET", "/model_info", headers={"Host": "evil.example"}))


# name, attack, answers that are as they should be
ATTACKS = [("shared-stop-ids", shared_stop_ids, {400, 413}), ("long-rid", long_rid, {400}),
           ("chunk-extension", chunk_extension, {400, "closed"}),
           ("half-bodies", half_bodies, {503, "held", "closed"}), ("whole-bodies", whole_bodies, {400, 413, 503}),
           ("many-values", many_values, {400, 413}), ("long-texts", long_texts, {400, 413, 503}),
           ("idle-connections", idle_connections, {"connected"}),
           ("slow-readers", slow_readers, {200, 503, "closed", "waits"}),
           ("slow-writers", slow_writers, {"closed"}),
           ("large-requests", large_requests, {200, 503, "no answer"}), ("checksums", checksums, {200, 503}),
           ("release-by-get", release_by_get, {400}), ("foreign-host", foreign_host, {403})]

def measure(options, model, name, attack, wanted, keyed):
    engine = Engine(options.engine, model, options.stop_at_gib, keyed)
    honest = [Honest(engine, "GET", "/model_info" if keyed else "/health"), Honest(engine, "POST", "/generate", SMALL)]
    for client in honest:
        client.start()
    time.sleep(1)
    rest, engine.peak = engine.memory(), 0.0
    for client in honest:
        client.seconds.clear()
    answers = {}
    thread = threading.Thread(target=lambda: answers.update(attack(engine)), daemon=True)
    start = time.monotonic()
    thread.start()
    while thread.is_alive() and time.monotonic() - start < options.limit_s and engine.process.poll() is None:
        thread.join(0.1)
    time.sleep(0.5)
    ended = engine.process.poll() is not None
    for client in honest:
        client.stop()
    engine.close()
    if engine.stopped:
        answers = {f"stopped at {options.stop_at_gib:g} GiB": 1}
    elif ended:
        answers = {"the engine ended": 1}
    elif not answers:
        answers = {f"no end in {options.limit_s:g} s": 1}
    answers = {answer: count for answer, count in answers.items() if count > 0}
    row = {"attack": name, "answers": {str(k): n for k, n in answers.items()}, "rest_mib": round(rest),
           "grown_mib": round(max(0.0, engine.peak - rest)), "seconds": round(time.monotonic() - start, 1),
           "health_p99_ms": round(honest[0].p99_ms(), 1), "generate_p99_ms": round(honest[1].p99_ms(), 1),
           "asked": sum(len(client.seconds) for client in honest),
           "failed": {str(k): n for client in honest for k, n in client.failed.items()}}
    row["holds"] = (set(answers) <= wanted and not row["failed"] and row["grown_mib"] <= options.grow_mib and
                    max(row["health_p99_ms"], row["generate_p99_ms"]) <= options.p99_ms)
    return row


def line_of(row):
    text = ", ".join(f"{k}" + (f" x{n}" if n > 1 else "") for k, n in sorted(row["answers"].items()))
    failed = sum(row["failed"].values())
    return (f"{row['attack']:17} {text[:30]:30} {row['grown_mib']:6} {row['health_p99_ms']:8.0f} "
            f"{row['generate_p99_ms']:9.0f} {failed:6} of {row['asked']:5}  {'ok' if row['holds'] else 'MISSED'}")


def newest_engine():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build")
    found = [os.path.join(root, preset, "bin", "tandem-engine") for preset in (os.listdir(root) if os.path.isdir(root)
                                                                            else [])]
    return max((path for path in found if os.path.exists(path)), key=os.path.getmtime, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="of " + ", ".join(a[0] for a in ATTACKS + KEYED))
    parser.add_argument("--engine", default=newest_engine(), help="the program; the newest of build/*/bin")
    parser.add_argument("--model", help="directory to serve; a tiny one is made when not given")
    parser.add_argument("--limit-s", type=float, default=90, help="seconds that an attack may take (%(default)s)")
    parser.add_argument("--stop-at-gib", type=float, default=8, help="kills an engine that takes more (%(default)s)")
    parser.add_argument("--grow-mib", type=float, default=512,
                        help="memory that an attack may cost: two budgets of 128 MiB, of bodies and of answers, and "
                             "256 (%(default)s)")
    parser.add_argument("--p99-ms", type=float, default=1000, help="of the honest clients (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of a table")
    options = parser.parse_args()
    unknown = set(options.attacks) - {a[0] for a in ATTACKS + KEYED}
    if unknown or options.engine is None:
        parser.error(f"no such attack: {', '.join(unknown)}" if unknown else "no tandem-engine is built: --engine")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 30000), hard))
    rows = []
    if not options.json:
        print(f"{'attack':17} {'answers':30} {'MiB +':>6} {'health':>8} {'generate':>9} {'failed':>6}           p99 in ms")
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            write_model(folder)
        for name, attack, wanted in ATTACKS + KEYED:
            if options.attacks and name not in options.attacks:
                continue
            keyed = name in {attack[0] for attack in KEYED}
            rows.append(measure(options, options.model or folder, name, attack, wanted, keyed))
            if not options.json:
                print(line_of(rows[-1]), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
