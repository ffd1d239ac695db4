// What went wrong, by an answer whose status is no success.
#pragma once

#include <string>

#include "common/http/client.h"

namespace tandem::http {

// What a server's error body says: its message where it is JSON of a form that servers of this field use, else its
// beginning; printable, for it comes to terminals and logs. Empty for an empty body.
std::string message_of(const std::string& body);

// "HTTP 404: Not Found", "HTTP 500", and of a redirect where to.
std::string error_text(const Response& response);

}  // namespace tandem::http
