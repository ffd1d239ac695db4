// Tensor names as wrappers leave them (torch.compile, DDP, PEFT, …), which no reader of the plain model
// knows.
#pragma once

#include <string>
#include <vector>

namespace tandem::model {

// Where names carry a wrapper's mark: which one, an example, and how the names are made plain; else empty.
// For the end of an error about a name that is missing or not known: begins with "; ".
std::string wrapped_names(const std::vector<std::string>& names);

}  // namespace tandem::model
