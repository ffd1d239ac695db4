"""What `import tandem_sync` takes: at most 100 ms of CPU time, and no PyTorch, which may be there or not."""

import subprocess
import sys

CODE = """
import sys, time
start = time.process_time()
import tandem_sync
print((time.process_time() - start) * 1000)
sys.exit("torch" in sys.modules)"""


def main():
    ms = sorted(float(subprocess.check_output([sys.executable, "-c", CODE])) for _ in range(7))
    print(f"import tandem_sync: {ms[3]:.0f} ms of CPU time (median of 7; {ms[0]:.0f} to {ms[-1]:.0f})", flush=True)
    sys.exit("too slow" if ms[3] > 100 else 0)


if __name__ == "__main__":
    main()
