// The server's side of the TCP store apart from its sockets: what is kept, and one client's conversation, bytes in and
// bytes out. All memory that clients make it take counts against one limit.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/identity/job_secret.h"
#include "common/store/tcp_protocol.h"

namespace tandem {

class StoreValues {
  public:
    explicit StoreValues(std::size_t max_bytes) : max_bytes_(max_bytes) {}

    // False, and nothing is changed: over the limit.
    bool set(const std::string& key, std::string value);
    const std::string* find(const std::string& key) const;  // null: absent

    // Of what is on its way: false over the limit.
    bool take(std::size_t bytes);
    void give_back(std::size_t bytes) { used_ -= bytes; }
    std::size_t used() const { return used_; }

  private:
    static constexpr std::size_t kEntry = 256;  // bytes of a key's place, at most
    const std::size_t max_bytes_;
    std::size_t used_ = 0;
    std::map<std::string, std::string> values_;
};

class StoreSession {
  public:
    // Both outlive the session. `secret` null: open to everybody.
    StoreSession(StoreValues& values, const JobSecret* secret, const Nonce& nonce = random_nonce());
    ~StoreSession();
    StoreSession(const StoreSession&) = delete;
    StoreSession& operator=(const StoreSession&) = delete;

    std::string greeting() const;
    // What came from the client, any part of it. Takes memory for what is there, never for what is announced. Throws
    // ProtocolError when the connection is to end, saying why.
    void feed(std::string_view bytes);
    // The answer to the next whole request that was fed, to be sent before the next call; nullopt: there is none yet.
    // Throws as feed(). Valid until the next call.
    std::optional<std::string_view> next();

    bool accepted() const { return accepted_; }  // open, or the client has proven that it knows the secret
    bool mid_request() const { return !rest().empty(); }  // or mid-proof
    bool ending() const { return ending_; }               // after the answer that next() gave

  private:
    std::optional<std::string_view> verdict();
    std::optional<std::string_view> answer();
    std::string_view say(wire::Status status, std::string_view value);
    std::string_view add(const std::string& key, const std::string& value);
    std::string_view rest() const { return std::string_view(in_).substr(at_); }
    void consume(std::size_t bytes);
    void charge(std::size_t& charged, std::size_t bytes);

    StoreValues& values_;
    const JobSecret* secret_;
    const Nonce nonce_;
    bool accepted_;
    bool ending_ = false;
    std::string in_;
    std::size_t at_ = 0;  // in_ is used up to here
    std::string out_;
    std::size_t charged_in_ = 0;
    std::size_t charged_out_ = 0;
};

}  // namespace tandem
