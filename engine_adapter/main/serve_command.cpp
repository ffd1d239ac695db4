#include "engine_adapter/main/commands.h"

#include <charconv>

#include "common/number_between.h"

namespace tandem::engine {
namespace {

// CLI11 takes -1 and 2^64 for others.
std::string is_seed(const std::string& text) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole ? "" : "'" + text + "' is not an integer from 0 to 2^64 - 1";
}

// As of --api-key "$KEY" without a KEY: a server that anybody may use is asked for by leaving the option out.
std::string is_key(const std::string& key) {
    return key.empty() ? "is empty; without a key leave the option out" : "";
}

}  // namespace

void add_serve(CLI::App& app, ServeOptions& options) {
    CLI::App* serve =
        app.add_subcommand("serve", "Serves a Hugging Face directory (config.json, safetensors) over HTTP");
    serve->add_option("--model", options.model, "Directory with config.json and safetensors files")
        ->required();
    serve
        ->add_option(
            "--listen", options.listen,
            "HOST:PORT ([::1]:PORT of IPv6; port 0 takes a free one; localhost: 127.0.0.1 and ::1), or "
            "unix:/PATH: a socket that only this user may open")
        ->capture_default_str();
    serve
        ->add_option(
            "--data-listen", options.data_listen,
            "HOST:PORT where trainers of other hosts push weights (they prove to know --admin-api-key, else "
            "--api-key); auto: a free port of --listen's host; off: none")
        ->capture_default_str();
    serve->add_option("--device", options.device, "cpu, cuda (the first GPU) or cuda:N")
        ->type_name("DEVICE")
        ->capture_default_str();
    serve->add_option("--dtype", options.dtype, "auto: what config.json says; float32 where that is float16")
        ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
        ->capture_default_str();
    serve
        ->add_option("--load-format", options.load_format,
                     "dummy: refuses to generate until weights are synced in")
        ->check(CLI::IsMember({"auto", "dummy"}))
        ->capture_default_str();
    serve->add_option("--weight-version", options.weight_version, "Version of the weights in the directory")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 60))
        ->capture_default_str();
    serve
        ->add_option(
            "--kv-tokens", options.kv_tokens,
            "Tokens that the KV cache holds; 0: up to 1 GiB of them, on a GPU --kv-fraction of its free "
            "memory")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 34))
        ->capture_default_str();
    serve
        ->add_option("--kv-fraction", options.kv_fraction,
                     "On a GPU: the share of the memory left free by the weights that the KV cache gets")
        ->check(number_between(0.001, 0.95))
        ->capture_default_str();
    serve->add_option("--max-running", options.max_running, "Samples decoded at the same time")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
        ->capture_default_str();
    serve->add_flag("!--no-packed-weights", options.packed_weights,
                    "Matmuls read the weights as they are stored: half the memory, slower decode");
    serve
        ->add_option(
            "--sum-parts", options.sum_parts,
            "Ranks of the trainer's tensor parallelism: o and down are summed in as many parts, as it sums "
            "them, so that log-probs agree more closely; takes a copy of both, and no CUDA graphs")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    serve->add_flag("--disable-cuda-graph", options.disable_cuda_graph,
                    "On a GPU, launches the kernels of a decode step one by one: slower, less memory");
    serve->add_option("--threads", options.threads, "Compute threads; 0: all cores")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    serve
        ->add_option("--random-seed", options.random_seed,
                     "Seeds requests that have no seed, 0 to 2^64 - 1; without it 32 bits are drawn at each "
                     "start, logged and shown in /server_info")
        ->check(is_seed);
    serve->add_flag("--skip-tokenizer-init", options.skip_tokenizer_init,
                    "Reads no tokenizer: requests have input_ids, answers come without text");
    serve->add_option("--max-body-mib", options.max_body_mib, "Largest request body in MiB")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}))
        ->capture_default_str();
    serve
        ->add_option("--request-timeout-s", options.request_timeout_s,
                     "A request not finished by then is answered 504")
        ->check(seconds())
        ->capture_default_str();
    serve
        ->add_option("--api-key", options.api_key,
                     "Clients must send it (Authorization: Bearer KEY, or x-api-key); /health stays open")
        ->check(is_key);
    serve
        ->add_option("--admin-api-key", options.admin_api_key,
                     "What pauses, releases memory or reads all weights needs this one")
        ->check(is_key);
    serve->add_option("--api-key-fd", options.api_key_fd, "Reads the API key from this descriptor")
        ->check(CLI::Range(0, 1 << 20));
    serve->add_flag("--allow-unauthenticated", options.allow_unauthenticated,
                    "Lets --listen be reachable from other machines without a key");
    serve->add_option("--ready-file", options.ready_file, "File to write the URL to, once the engine serves");
    serve->add_flag("--die-with-parent", options.die_with_parent,
                    "Ends when the process that started it ends");
    serve
        ->add_option("--parent-pid", options.parent_pid,
                     "That process's id, so that its end is noticed also before this program runs")
        ->check(CLI::Range(1, 1 << 30));
    serve->footer(
        "Example:\n"
        "  tandem-engine serve --model runs/quickstart/checkpoint --listen 127.0.0.1:30000\n"
        "  curl -s http://127.0.0.1:30000/generate -d \\\n"
        "    '{\"input_ids\": [1, 2, 3], \"sampling_params\": {\"max_new_tokens\": 8, \"seed\": 1}, "
        "\"return_logprob\": true}'");
    serve->callback([&options] { engine::serve(options); });
}

}  // namespace tandem::engine
