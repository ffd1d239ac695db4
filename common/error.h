// The errors that Tandem throws. A broken invariant or a failing system call throws one of these types; an
// expected outcome at a process border (HTTP, receiver protocol, exit code) is a Status, converted in one
// place: to_status.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tandem {

// Base of everything that Tandem throws on purpose. what() says what went wrong, where, and what to do.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The caller broke a contract: wrong shape, dtype, rank, axis name. A bug in the calling code: at a process
// border an internal error.
class InvalidArgument : public Error {
  public:
    using Error::Error;
};

// The same of a value that came from outside the program (a request, a name, a peer's plan), which is
// refused: the fault is the sender's.
class BadInput : public InvalidArgument {
  public:
    using InvalidArgument::InvalidArgument;
};

// A user's file or option is wrong. Programs print it and exit with code 2.
class ConfigError : public Error {
  public:
    ConfigError(std::string file, std::string key, const std::string& message)
        : Error(key.empty() ? fmt::format("{}: {}", file, message)
                            : fmt::format("{}: {}: {}", file, key, message)),
          file_(std::move(file)),
          key_(std::move(key)) {}
    const std::string& file() const { return file_; }  // file, or "command line"
    const std::string& key() const { return key_; }    // dotted key, or empty

  private:
    std::string file_;
    std::string key_;
};

// A failing system call; the message carries errno's text.
class SystemError : public Error {
  public:
    SystemError(std::string_view call, int error_number);
    int error_number() const { return error_number_; }

  private:
    int error_number_;
};

// A failing call of CUDA or of one of its libraries. code_name() is CUDA's own word for it.
class CudaError : public Error {
  public:
    CudaError(std::string_view call, std::string code_name, std::string_view meaning)
        : Error(fmt::format("{}: {} ({})", call, meaning, code_name)), code_name_(std::move(code_name)) {}
    const std::string& code_name() const { return code_name_; }  // "CUDA_ERROR_OUT_OF_MEMORY"

  private:
    std::string code_name_;
};

// A peer did not answer, went away, or the job was aborted.
class TransportError : public Error {
  public:
    TransportError(std::string peer, std::string phase, const std::string& message, bool retryable = false)
        : Error(fmt::format("{} with {}: {}", phase, peer, message)),
          peer_(std::move(peer)),
          phase_(std::move(phase)),
          retryable_(retryable) {}
    const std::string& peer() const { return peer_; }    // "rank 3", "engine 127.0.0.1:30000"
    const std::string& phase() const { return phase_; }  // "all_gather", "load bucket 4"
    bool retryable() const { return retryable_; }

  private:
    std::string peer_;
    std::string phase_;
    bool retryable_;
};

// A wait that passed its deadline; peer() names the late one.
class DeadlineExceeded : public TransportError {
  public:
    using TransportError::TransportError;
};

// A peer said something that the protocol does not allow, or data failed its checksum.
class ProtocolError : public Error {
  public:
    using Error::Error;
};

// One table of outcomes for process borders. The number is stable; the HTTP status and the exit code follow
// from it.
enum class Code {
    ok = 0,
    invalid = 1,
    not_found = 2,
    conflict = 3,
    unavailable = 4,
    deadline = 5,
    corrupt = 6,
    internal = 7
};

struct Status {
    Code code = Code::ok;
    std::string message;
    bool ok() const { return code == Code::ok; }
};

std::string_view code_name(Code code);
int http_status(Code code);               // 200, 400, 404, 409, 503, 504, 422, 500
int exit_code(Code code);                 // 0 ok, 2 invalid (bad usage or input), 1 everything else
Status to_status(const std::exception&);  // the one conversion from exception to Status

// Throws InvalidArgument with a formatted message unless `condition` holds: for the contracts of our own
// code.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) throw InvalidArgument(fmt::format(format, std::forward<Args>(args)...));
}

// The same where making the message's parts costs more than the check: `message` is called only when needed.
template <typename Message>
requires std::is_invocable_r_v<std::string, const Message&>
void require(bool condition, const Message& message) {
    if (!condition) throw InvalidArgument(message());
}

// Throws BadInput: for what came from outside the program.
template <typename... Args>
void enforce(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) throw BadInput(fmt::format(format, std::forward<Args>(args)...));
}

template <typename Message>
requires std::is_invocable_r_v<std::string, const Message&>
void enforce(bool condition, const Message& message) {
    if (!condition) throw BadInput(message());
}

}  // namespace tandem
