"""Directories of one architecture with different weights, and what transformers says of each."""
import fnmatch

import torch
import transformers

from vllm_server import PROMPTS, TOKENS


def make_models(options, folder):
    """options.models directories: random, of options.shapes where given; or the first with the weights of options.model."""
    dtype = getattr(torch, options.dtype)
    directories, wanted = [], []
    for seed in range(options.models):
        torch.manual_seed(seed)
        if options.model:
            model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
            if seed > 0:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(1 + 0.05 * torch.randn_like(parameter))
        elif getattr(options, "shapes", None):
            config = transformers.AutoConfig.from_pretrained(options.shapes)
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        else:
            model = random_model(options, dtype)
        directories.append(folder / f"weights{seed}")
        model.save_pretrained(directories[-1])
        wanted.append(expected(model.eval()))
    return directories, wanted


def random_model(options, dtype):
    sizes = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=options.tied,
                 initializer_range=0.2)
    if options.family != "qwen2":
        sizes["head_dim"] = 32
    config = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config,
              "qwen3": transformers.Qwen3Config}[options.family](**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def expected_of_mixture(directory, other, pattern):
    """Of a directory's weights, where another's stand in for those whose names match."""
    model, source = (transformers.AutoModelForCausalLM.from_pretrained(path) for path in (directory, other))
    taken = {name: value for name, value in source.state_dict().items() if fnmatch.fnmatchcase(name, pattern)}
    model.load_state_dict(taken, strict=False)
    return expected(model.eval())


@torch.no_grad()
def expected(model):
    """For each prompt: greedy tokens, and the log-prob of each prompt token after the first."""
    answers = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        logprobs = model(ids).logits.float().log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        out = ids
        for _ in range(TOKENS):
            out = torch.cat([out, model(out).logits[:, -1:].argmax(-1)], 1)
        answers.append((out[0, len(prompt):].tolist(), logprobs.tolist()))
    return answers


def differences(found, wanted):
    """How many greedy answers differ; the largest and the mean difference of the prompts' log-probs."""
    tokens = sum(a != b for (a, _), (b, _) in zip(found, wanted))
    apart = [abs(x - y) for (_, a), (_, b) in zip(found, wanted) for x, y in zip(a, b)]
    return tokens, max(apart), sum(apart) / len(apart)


def apart(found, wanted):
    """How far log-probs are apart; the tokens must be the same."""
    tokens, largest, _ = differences(found, wanted)
    assert tokens == 0, (found, wanted)
    return largest
