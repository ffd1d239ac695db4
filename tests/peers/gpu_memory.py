"""What is taken of the first GPU's memory, by whoever, as nvidia-smi says it."""
import contextlib
import shutil
import subprocess
import threading

QUERY = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


def used_mib():
    """0 where there is no GPU."""
    if not shutil.which(QUERY[0]):
        return 0
    return int(subprocess.run(QUERY, capture_output=True, text=True, check=True).stdout)


class Watch:
    def __init__(self):
        self.seen = []

    def tenths(self):
        """The least and the most of each tenth of the time, in MiB."""
        tenth = max(1, len(self.seen) // 10)
        parts = [self.seen[i:i + tenth] for i in range(0, len(self.seen), tenth)]
        return [(min(part), max(part)) for part in parts]

    def check(self):
        """That it has not grown: the last third's most is no more than the middle third's."""
        third = len(self.seen) // 3
        middle, last = max(self.seen[third:2 * third]), max(self.seen[2 * third:])
        assert last <= middle, (middle, last, self.tenths())


@contextlib.contextmanager
def watched(every_ms=50):
    """A Watch of the time that this encloses."""
    watch = Watch()
    asker = subprocess.Popen([*QUERY, f"--loop-ms={every_ms}"], stdout=subprocess.PIPE, text=True)
    reader = threading.Thread(target=lambda: watch.seen.extend(int(line) for line in asker.stdout))
    reader.start()
    try:
        yield watch
    finally:
        asker.terminate()
        reader.join()
        asker.wait()
