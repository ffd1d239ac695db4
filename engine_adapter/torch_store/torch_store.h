// A server of PyTorch's TCPStore, for a process group of PyTorch whose rank 0 is a process without PyTorch: its other
// ranks connect with torch.distributed.TCPStore(host, port, is_master=False), which is what
// init_process_group("tcp://host:port") does where the rank is not 0. PyTorch 2.6 to 2.14 (wire.h).
//
// Names of keys. What a client calls `name` travels as "/name", and TorchStore takes and gives names as clients do, without
// it. PrefixStore("group", store) puts "group/" before a name, and init_process_group wraps its store in several of them:
// awaited() says what the clients have made of a name. SGLang's workers make "G/G//cuda//" of their group's name G, before
// what the backend asks for: ProcessGroupNCCL for "0", the 128 bytes of an ncclUniqueId; newer backends for other names, but
// for them first of all too. Besides, each client that was told of a number of workers adds 1 to
// a key of its own kind, "init/", which no name stands for; only PyTorch's own server waits for it.
//
// The protocol has no secret: who reaches the port reads and writes. Listen for as few as possible, and where the group's name
// is one that nobody guesses, let it be the secret (TorchStoreOptions::secret).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "common/deadline.h"

namespace tandem::engine {

struct TorchStoreOptions {
    // What all names of the group's hold. A client that reads another key, waits for one or asks for the list of them is sent
    // away; what it sets, counts (as "init/") or checks is nobody else's. Empty: whoever comes reads.
    std::string secret = {};
    std::size_t max_connections = 1024;
    std::size_t max_bytes = std::size_t{64} << 20;  // of all keys, values, requests and answers together
    // For a client's first words, the rest of a request, and the reading of an answer. Between two requests a client may
    // be silent for as long as its host answers.
    std::chrono::milliseconds patience{20'000};
};

// Runs in a thread of its own until destroyed; then its clients find their connections closed. What a client does wrong
// ends its connection and nothing else. Thread-safe, all but the destructor.
class TorchStore {
  public:
    // Port 0 takes a free one. Throws BadInput: `host` is unknown; SystemError: it cannot be listened on.
    TorchStore(const std::string& host, int port, const TorchStoreOptions& options = {});
    ~TorchStore();
    TorchStore(const TorchStore&) = delete;
    TorchStore& operator=(const TorchStore&) = delete;

    int port() const;

    // Throws InvalidArgument: longer than PyTorch's 8 KiB of a key, 8 MiB of a value; ProtocolError: the store is full.
    void set(const std::string& name, const std::string& value);
    // Waits for it. Throws DeadlineExceeded, naming the key.
    std::string get(const std::string& name, Deadline deadline);
    // The new number. Throws as set(), and ProtocolError where the value is no number.
    std::int64_t add(const std::string& name, std::int64_t amount);

    std::set<std::string> awaited();  // names that clients wait for now

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::engine
