"""An SGLang server of its own for a script: started on the CPU, asked for greedy tokens and log-probs, stopped."""
import urllib.error

import plugin
from server_process import ServerProcess
from vllm_server import PROMPTS, TOKENS

ARGUMENTS = ["--skip-tokenizer-init", "--device", "cpu", "--attention-backend", "torch_native", "--disable-cuda-graph",
             "--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--max-total-tokens", "2048",
             "--sleep-on-idle"]
# For a server that sees another /dev/shm than its pushers.
BLIND = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


class Server(ServerProcess):
    """Serves `directory` when the constructor returns; ends the program where it does not start."""

    def __init__(self, options, directory, log, blind=False):
        command = [*(BLIND if blind else []), options.python, "-m", "sglang.launch_server", "--model-path",
                   str(directory), "--host", "127.0.0.1", "--port", str(options.port), "--dtype", options.dtype,
                   *(options.server.split() if options.server else ARGUMENTS), *options.serve_option,
                   *(plugin.SGLANG_ARGUMENTS if getattr(options, "plugin", None) else [])]
        super().__init__(command, f"http://127.0.0.1:{options.port}", log)

    def complete(self, prompt, timeout=120, tokens=TOKENS):
        body = dict(input_ids=prompt, return_logprob=True, logprob_start_len=0,
                    sampling_params=dict(temperature=0, max_new_tokens=tokens, ignore_eos=True))
        said = self.post("/generate", body, timeout)
        info = said["meta_info"]
        return dict(token_ids=said["output_ids"], logprobs=info["input_token_logprobs"],
                    aborted=info["finish_reason"]["type"] == "abort")

    def ask(self, timeout=120):
        """For each prompt: greedy tokens, and the log-prob of each prompt token after the first."""
        answers = []
        for prompt in PROMPTS:
            choice = self.complete(prompt, timeout)
            answers.append((choice["token_ids"], [entry[0] for entry in choice["logprobs"][1:]]))
        return answers

    def paused(self):
        """Older servers have no route that tells: a paused one keeps requests waiting."""
        try:
            self.complete(PROMPTS[0], timeout=8, tokens=1)
        except TimeoutError:
            return True
        except urllib.error.HTTPError as error:
            return error.code == 503
        return False

    def weight_version(self):
        return self.get("/model_info")["weight_version"]
