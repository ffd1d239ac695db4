// Rendezvous, apart from the transport: a small key-value store that every rank of a job can reach.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/deadline.h"

namespace tandem::comm {

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
std::shared_ptr<Store> connect_tcp_store(const std::string& host, int port, Deadline deadline);

// The number behind an integer key's text ("" is 0). Throws InvalidArgument naming the key. For the stores
// themselves.
std::int64_t parse_store_integer(const std::string& key, const std::string& value);

// The server side of the TCP store: runs in a thread of its own until destroyed. Port 0 takes a free one.
class TcpStoreServer {
  public:
    TcpStoreServer(const std::string& host, int port);
    ~TcpStoreServer();
    int port() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::comm
