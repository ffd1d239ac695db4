#include "trainer/checkpoint/hash.h"

#include <xxhash.h>

#include <new>

namespace tandem::trainer {

struct Hash::State {
    XXH3_state_t* xxh = XXH3_createState();
    ~State() { XXH3_freeState(xxh); }
};

Hash::Hash() : state_(std::make_unique<State>()) {
    if (state_->xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_->xxh);
}
Hash::~Hash() = default;

void Hash::add(ConstSpan bytes) {
    XXH3_128bits_update(state_->xxh, bytes.data, bytes.bytes);
}

ops::Checksum Hash::value() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
    return {hash.low64, hash.high64};
}

}  // namespace tandem::trainer
