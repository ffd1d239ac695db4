// `tandem-engine serve`: a Hugging Face directory behind HTTP, until SIGTERM, SIGINT, SIGHUP or SIGQUIT.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem::engine {

struct ServeOptions {
    std::string model;  // directory
    std::string listen = "127.0.0.1:30000";
    std::string data_listen = "auto";  // of weights over TCP: HOST:PORT; auto: listen's host; off: none
    std::string device = "cpu";        // cpu, cuda, cuda:N
    std::string dtype = "auto";        // auto: config.json's, float32 for float16
    std::string load_format = "auto";  // dummy: no weights until the first sync
    std::int64_t weight_version = 1;   // of the weights in the directory
    std::int64_t kv_tokens = 0;
    double kv_fraction = 0.8;
    std::int64_t max_running = 256;
    bool packed_weights = true;
    int sum_parts = 1;  // decoder.h
    bool disable_cuda_graph = false;
    int threads = 0;                           // for matmuls; 0: all cores
    std::optional<std::uint64_t> random_seed;  // of requests without one; nothing: drawn, and logged
    bool skip_tokenizer_init = false;          // requests come as token ids alone
    std::int64_t max_body_mib = 64;
    double request_timeout_s = 600;
    std::string api_key;  // common/http/access.h
    std::string admin_api_key;
    int api_key_fd = -1;                 // a descriptor that api_key is read from
    bool allow_unauthenticated = false;  // listens to other machines without a key
    std::string ready_file;              // gets the URL when the engine serves
    bool die_with_parent = false;
    int parent_pid = 0;  // as the parent knew it before it started this process; 0: not given
};

// Blocks. Prints "listening on URL" on stdout when it serves. Throws ConfigError for whatever the user got
// wrong.
void serve(const ServeOptions& options);

}  // namespace tandem::engine
