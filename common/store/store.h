// Rendezvous, apart from the transport: a small key-value store that every rank of a job can reach.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/deadline.h"
#include "common/identity/job_secret.h"

namespace tandem {

// Thread-safe. Values are bytes.
class Store {
  public:
    virtual ~Store() = default;
    virtual void set(const std::string& key, const std::string& value) = 0;
    // Waits until the key is there. Throws DeadlineExceeded naming the key.
    virtual std::string get(const std::string& key, Deadline deadline) = 0;
    // Adds to an integer key (0 when absent); returns the new value.
    virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

std::shared_ptr<Store> make_memory_store();  // ranks as threads of one process
std::shared_ptr<Store> make_file_store(const std::string& directory);
// `secret`: the server must prove that it knows it, and this client does so. Throws ConfigError naming
// TANDEM_JOB_SECRET when only one side has one or they differ, DeadlineExceeded when nobody answers.
std::shared_ptr<Store> connect_tcp_store(const std::string& host, int port, Deadline deadline,
                                         const std::optional<JobSecret>& secret = std::nullopt);

// The number behind an integer key's text ("" is 0). Throws InvalidArgument naming the key. For the stores
// themselves.
std::int64_t parse_store_integer(const std::string& key, const std::string& value);

struct StoreServerOptions {
    std::optional<JobSecret> secret = std::nullopt;  // none: open to whoever connects
    std::size_t max_connections = 16384;             // fewer where the process may open fewer descriptors
    std::size_t max_bytes = std::size_t{64} << 20;   // of all keys, values and requests together
    // For the rest of a request, a proof, the reading of an answer.
    std::chrono::milliseconds patience{20'000};
    std::chrono::milliseconds idle_timeout{900'000};  // between two requests
};

// The server side of the TCP store: runs in a thread of its own until destroyed. Port 0 takes a free one. What a
// client does wrong, and what goes wrong with it, ends its connection and nothing else.
class TcpStoreServer {
  public:
    TcpStoreServer(const std::string& host, int port, const StoreServerOptions& options = {});
    ~TcpStoreServer();
    int port() const;
    bool loopback() const;  // listens for this host only

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
