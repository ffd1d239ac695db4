// What a header may say of how the body comes, and this server cannot do. Told before the body is read.
//
//   two headers Host                                     400
//   Transfer-Encoding other than chunked                 501: where such a body ends is not known
//   Content-Encoding other than identity, with a body    415
//   Expect other than 100-continue, over HTTP/1.1        417
#pragma once

#include <boost/beast/http/fields.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/access.h"

namespace tandem::http {

// minor: the second number of the HTTP version.
std::optional<Refusal> refuse_framing(const boost::beast::http::fields& fields, unsigned minor,
                                      bool has_body);

// The words of all headers of a name, which are lists with commas.
std::vector<std::string> words_of(const boost::beast::http::fields& fields, boost::beast::http::field name);

}  // namespace tandem::http
