"""A vLLM server of its own for a script: started, asked for greedy tokens and log-probs, measured, stopped."""
import plugin
from server_process import ServerProcess

PROMPTS = [[1, 5, 9, 2, 7, 30, 31, 32], [3, 3, 8, 100, 17, 60], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]]
TOKENS = 12


class Server(ServerProcess):
    """Serves `directory` when the constructor returns; ends the program where it does not start."""

    def __init__(self, options, directory, log):
        command = [options.vllm, "serve", str(directory), "--served-model-name", "model", "--host", "127.0.0.1",
                   "--port", str(options.port), "--max-model-len", "128", "--enforce-eager", "--dtype", options.dtype,
                   "--tokenizer", options.tokenizer or options.model, "--gpu-memory-utilization", "0.1",
                   *(plugin.VLLM_ARGUMENTS if getattr(options, "plugin", None) else []),
                   *getattr(options, "serve_option", [])]
        super().__init__(command, f"http://127.0.0.1:{options.port}", log)

    @property
    def target(self):
        """What tandem-sync and tandem-train call it."""
        return self.url.replace("http", "vllm")

    def complete(self, prompt, timeout=120):
        """The choice of a greedy completion, with the log-probs of the prompt."""
        body = dict(model="model", prompt=prompt, max_tokens=TOKENS, temperature=0, prompt_logprobs=0, logprobs=0,
                    return_token_ids=True, ignore_eos=True)
        return self.post("/v1/completions", body, timeout)["choices"][0]

    def ask(self, timeout=120):
        """For each prompt: greedy tokens, and the log-prob of each prompt token after the first."""
        answers = []
        for prompt in PROMPTS:
            choice = self.complete(prompt, timeout)
            logprobs = [entry[str(token)]["logprob"]
                        for token, entry in zip(prompt[1:], choice["prompt_logprobs"][1:])]
            answers.append((choice["token_ids"], logprobs))
        return answers

    def paused(self):
        return self.get("/is_paused")["is_paused"]

    def weight_version(self):
        return self.get("/weight_info")["weight_version"]
