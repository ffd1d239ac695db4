#include "common/error.h"

#include <cstring>

namespace tandem {

SystemError::SystemError(std::string_view call, int error_number)
    : Error(fmt::format("{}: {}", call, std::strerror(error_number))), error_number_(error_number) {}

std::string_view code_name(Code code) {
    switch (code) {
        case Code::ok:
            return "ok";
        case Code::invalid:
            return "invalid";
        case Code::not_found:
            return "not_found";
        case Code::conflict:
            return "conflict";
        case Code::unavailable:
            return "unavailable";
        case Code::deadline:
            return "deadline";
        case Code::corrupt:
            return "corrupt";
        case Code::internal:
            return "internal";
    }
    return "internal";
}

int http_status(Code code) {
    switch (code) {
        case Code::ok:
            return 200;
        case Code::invalid:
            return 400;
        case Code::not_found:
            return 404;
        case Code::conflict:
            return 409;
        case Code::unavailable:
            return 503;
        case Code::deadline:
            return 504;
        case Code::corrupt:
            return 422;
        case Code::internal:
            return 500;
    }
    return 500;
}

int exit_code(Code code) {
    if (code == Code::ok) return 0;
    return code == Code::invalid ? 2 : 1;
}

Status to_status(const std::exception& error) {
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) return {Code::invalid, error.what()};
    if (dynamic_cast<const BadInput*>(&error) != nullptr) return {Code::invalid, error.what()};
    if (dynamic_cast<const DeadlineExceeded*>(&error) != nullptr) return {Code::deadline, error.what()};
    if (dynamic_cast<const TransportError*>(&error) != nullptr) return {Code::unavailable, error.what()};
    if (dynamic_cast<const ProtocolError*>(&error) != nullptr) return {Code::corrupt, error.what()};
    return {Code::internal, error.what()};
}

}  // namespace tandem
