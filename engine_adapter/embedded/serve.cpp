#include "engine_adapter/embedded/serve.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "common/device/devices.h"
#include "common/error.h"
#include "common/http/server.h"
#include "common/log.h"
#include "common/model/check_weights.h"
#include "common/ops/matmul.h"
#include "common/tokenizer/stop_tokens.h"
#include "common/tokenizer/tokenizer.h"
#include "common/user_file.h"
#include "engine_adapter/embedded/ending_signals.h"
#include "engine_adapter/embedded/routes.h"
#include "engine_adapter/receiver/receiver.h"

namespace tandem::engine {
namespace {

// An orphan's parent is whoever adopts it, which need not be process 1.
void die_with_parent(pid_t announced) {
    const pid_t parent = announced != 0 ? announced : ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent || parent == 1)
        throw Error("the parent process ended before the engine started");
}

// Throws ConfigError when the machine has no such device.
Device decide_device(const ServeOptions& options) {
    try {
        const Device device = device_from_name(options.device);
        require_device(device);
        return device;
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", "--device", error.what());
    }
}

DType decide_dtype(const ServeOptions& options, const model::ModelConfig& config) {
    if (options.dtype != "auto") return dtype_from_name(options.dtype);
    if (config.torch_dtype != DType::float16) return config.torch_dtype;
    log_info("{}/config.json says float16, which is not computed in: the weights serve as float32",
             options.model);
    return DType::float32;
}

// What ends an answer, by all files of the directory, in place of config.json's ids alone.
void take_stop_tokens(model::ModelConfig& config, const std::string& directory,
                      const std::optional<tokenizer::Tokenizer>& tokenizer) {
    const auto ends = tokenizer ? tokenizer::ends_of(*tokenizer, directory) : tokenizer::TokenizerEnds{};
    const auto stops = tokenizer::stop_tokens(directory, ends, config.vocab_size);
    config.eos_token_id = stops.empty() ? -1 : stops.front().id;
    config.more_eos_token_ids.clear();
    for (std::size_t i = 1; i < stops.size(); ++i) config.more_eos_token_ids.push_back(stops[i].id);
    if (stops.empty()) {
        log_info("stop tokens: none is named in {}: answers end at max_new_tokens or a request's own",
                 directory);
        return;
    }
    log_info("stop tokens: {}", tokenizer::to_string(stops, [&](std::int32_t id) {
                 return tokenizer ? tokenizer->token(id).value_or("") : std::string();
             }));
}

// Of the receiver: who may pause may push.
std::optional<TcpListen> decide_data_plane(const ServeOptions& options, const http::ServerOptions& http) {
    if (options.data_listen == "off") return {};
    const bool automatic = options.data_listen == "auto";
    const http::ListenAddress at =
        http::parse_listen_address(automatic ? options.listen : options.data_listen, "--data-listen");
    if (!at.socket.empty() && automatic) return {};
    if (!at.socket.empty())
        throw ConfigError("command line", "--data-listen", "weights over TCP need HOST:PORT");
    TcpListen listen;
    listen.host = at.host;
    listen.port = automatic ? "0" : std::to_string(at.port);
    listen.key = http.admin_api_key.empty() ? http.api_key : http.admin_api_key;
    listen.anybody = options.allow_unauthenticated;
    return listen;
}

template <class Number>
Number drawn() {
    Number number = 0;
    if (::getentropy(&number, sizeof number) != 0) throw SystemError("getentropy", errno);
    return number;
}

// 32 bits, as SGLang draws them, so that any client can hold it.
std::uint64_t drawn_seed() {
    const auto seed = drawn<std::uint32_t>();
    log_info("random seed {} (drawn; --random-seed {} gives the same samples again)", seed, seed);
    return seed;
}

struct TokenizerOrWhy {
    std::optional<tokenizer::Tokenizer> tokenizer;
    std::string why;  // there is none
};

// Without one requests must have input_ids: no reason to refuse a model.
TokenizerOrWhy read_tokenizer(const ServeOptions& options) {
    TokenizerOrWhy read;
    if (options.skip_tokenizer_init) {
        read.why = "this engine was started with --skip-tokenizer-init";
        return read;
    }
    if (!tokenizer::Tokenizer::present(options.model)) {
        read.why = "this model has no tokenizer files";
    } else {
        try {
            read.tokenizer.emplace(tokenizer::Tokenizer::from_directory(options.model));
            return read;
        } catch (const ConfigError& error) {
            read.why = fmt::format("this model's tokenizer cannot be read ({})", error.what());
        } catch (const std::exception& error) {
            read.why = fmt::format("this model's tokenizer cannot be read ({}/tokenizer.json: {})",
                                   options.model, error.what());
        }
    }
    log_warn("{}: requests must have input_ids, and answers come without text", read.why);
    return read;
}

void write_ready_file(const std::string& file, const std::string& url) {
    const std::string temporary = file + ".tmp." + std::to_string(::getpid());
    std::ofstream out(temporary);
    out << url << "\n";
    out.close();
    if (!out || std::rename(temporary.c_str(), file.c_str()) != 0) {
        std::remove(temporary.c_str());
        throw ConfigError("command line", "--ready-file", "\"" + file + "\" cannot be written");
    }
}

// What a descriptor holds: one key, perhaps with a newline. Closes it.
std::string read_key(int descriptor) {
    std::string key(4096, '\0');
    const ssize_t size = ::pread(descriptor, key.data(), key.size(), 0);
    ::close(descriptor);
    key.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    key.erase(key.find_last_not_of(" \r\n") + 1);
    if (key.empty()) throw ConfigError("command line", "--api-key-fd", "no key can be read there");
    return key;
}

// Whoever reaches the engine may try thousands of keys a second.
void warn_of_weak_keys(const ServeOptions& options, const http::ServerOptions& http, bool reachable) {
    constexpr std::size_t kShortest = 16;  // bytes
    const char* const user = options.api_key_fd >= 0 ? "--api-key-fd" : "--api-key";
    for (const auto& [option, key] :
         {std::pair(user, &http.api_key), {"--admin-api-key", &http.admin_api_key}}) {
        if (!reachable || key->empty() || key->size() >= kShortest) continue;
        log_warn("{}: a key of {} bytes can be guessed from other machines: draw {} at random, or more",
                 option, key->size(), kShortest);
    }
}

}  // namespace

void serve(const ServeOptions& options) {
    EndingSignals signals;
    std::signal(SIGPIPE, SIG_IGN);  // the reader of our output may be gone
    if (options.die_with_parent) die_with_parent(options.parent_pid);
    require_writable("--ready-file", options.ready_file);
    model::ModelConfig config = model::read_model_config(options.model);
    const Device device = decide_device(options);
    const bool load = options.load_format == "auto";
    if (load) model::check_weights(model::Safetensors::open(options.model), config);
    const TokenizerOrWhy text = read_tokenizer(options);
    take_stop_tokens(config, options.model, text.tokenizer);
    ops::set_compute_threads(options.threads > 0
                                 ? options.threads
                                 : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));

    http::ServerOptions http_options;
    http_options.listen = options.listen;
    http_options.max_body_bytes = static_cast<std::size_t>(options.max_body_mib) << 20;
    http_options.api_key = options.api_key_fd >= 0 ? read_key(options.api_key_fd) : options.api_key;
    http_options.admin_api_key = options.admin_api_key;
    http::Server server(http_options);  // first: a port in use is found before gigabytes are read
    const auto removes_socket_file = signals.before_the_end([&] { server.stop(); });
    const bool keyless = http_options.api_key.empty() && http_options.admin_api_key.empty();
    if (keyless && !server.loopback() && !options.allow_unauthenticated) {
        throw ConfigError("command line", "--listen",
                          options.listen +
                              " can be reached from other machines, where anybody could drop the weights: "
                              "set --api-key, or say --allow-unauthenticated");
    }

    const std::optional<TcpListen> data_plane = decide_data_plane(options, http_options);
    warn_of_weak_keys(options, http_options,
                      !server.loopback() || (data_plane && !http::names_loopback(data_plane->host)));

    EmbeddedOptions engine_options;
    engine_options.device = device;
    engine_options.dtype = decide_dtype(options, config);
    engine_options.packed_weights = options.packed_weights;
    engine_options.sum_parts = options.sum_parts;
    engine_options.disable_cuda_graph = options.disable_cuda_graph;
    engine_options.kv_tokens = options.kv_tokens;
    engine_options.kv_fraction = options.kv_fraction;
    engine_options.max_running = options.max_running;
    engine_options.random_seed = options.random_seed ? *options.random_seed : drawn_seed();
    engine_options.request_timeout =
        std::chrono::milliseconds(static_cast<std::int64_t>(options.request_timeout_s * 1e3));
    EmbeddedEngine engine(config, engine_options);
    if (load) engine.load(options.model, options.weight_version);
    engine.start();
    signals.serving();

    ReceiverOptions receiver_options;
    receiver_options.data_plane = data_plane;
    Receiver receiver(engine, receiver_options);
    Background background(256);
    add_routes(server, engine,
               {options.model, receiver.address(), text.tokenizer ? &*text.tokenizer : nullptr, &background,
                receiver.data_port(), fmt::format("{:016x}", drawn<std::uint64_t>()), text.why});
    server.start();
    std::printf("listening on %s\n", server.url().c_str());
    std::fflush(stdout);
    if (!options.ready_file.empty()) write_ready_file(options.ready_file, server.url());

    log_info("signal {}: shutting down", signals.wait());
    engine.stop();  // answers open requests; then the server may close
    server.stop();
}

}  // namespace tandem::engine
