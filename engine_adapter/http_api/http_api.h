// The HTTP API of a third-party inference server, for the classes that name its routes (vllm/server.h). Every failure
// names the URL, the route as its phase, and what to do. One thread at a time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/deadline.h"
#include "common/http/client.h"

namespace tandem::engine {

struct HttpApiHints {
    std::string key;            // what sets the key: "VLLM_API_KEY"
    std::string missing_route;  // what a 404 says of the server, and how to start it
};

class HttpApi {
  public:
    // name: "vllm://HOST:PORT". key: empty for none. Throws BadInput: no URL.
    HttpApi(const std::string& name, const std::string& key, HttpApiHints hints);

    const std::string& name() const { return name_; }

    // The answer whatever its status; throws TransportError, DeadlineExceeded.
    http::Response ask(const std::string& method, const std::string& target, const std::string& body,
                       Deadline deadline);
    // These throw TransportError on any status but 2xx, and where the answer is not JSON. An empty body is null.
    nlohmann::json get(const std::string& target, Deadline deadline);
    nlohmann::json post(const std::string& target, const std::string& body, Deadline deadline);

  protected:
    // Of an answer that is none: "HTTP 401: Unauthorized; set VLLM_API_KEY, or give a --key-file".
    std::string why(const http::Response& response) const;

  private:
    nlohmann::json checked(const std::string& phase, const http::Response& response);

    std::string name_;
    bool has_key_;
    HttpApiHints hints_;
    http::Client http_;
};

}  // namespace tandem::engine
