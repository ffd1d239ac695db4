#include "common/tokenizer/growth.h"

#include "common/error.h"

namespace tandem::tokenizer {

void Growth::fail() const {
    throw BadInput(fmt::format("tokenizer.json: {}: makes more than {} bytes of a text of {} bytes", part_,
                               most_, given_));
}

}  // namespace tandem::tokenizer
