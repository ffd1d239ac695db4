// Makes requests of the bytes that a client of the torch store sends. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine_adapter/torch_store/wire.h"

namespace tandem::engine::torch_store {

struct Request {
    Operation operation = Operation::validate;
    std::vector<std::string> texts;  // keys and values, in their order
    std::int64_t number = 0;         // of u and n
};

class RequestReader {
  public:
    void feed(std::string_view bytes);
    // The next whole request. Throws ProtocolError: an unknown one, or one over the limits of wire.h, as soon as it says
    // so. Takes memory for what is there, never for what is announced, and looks at each byte once.
    std::optional<Request> next();

    bool mid_request() const { return open_ || at_ < in_.size(); }
    std::size_t bytes() const { return in_.size() + taken_; }  // of memory, about

  private:
    void begin();
    bool read_field();  // false: not there yet
    bool read_count();
    bool read_text(std::uint64_t longest);
    template <typename Number>
    bool read_number();
    template <typename Number>
    std::optional<Number> peek() const;

    std::string in_;
    std::size_t at_ = 0;  // in_ is used up to here
    bool open_ = false;   // a request has begun
    Request request_;
    std::string_view fields_;   // all of the request's, without the star
    std::size_t field_ = 0;     // the next one
    std::uint64_t rounds_ = 0;  // of fields_ that are left, this one too
    bool count_is_missing_ = false;
    std::size_t taken_ = 0;  // by request_
};

}  // namespace tandem::engine::torch_store
