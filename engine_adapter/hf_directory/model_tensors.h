// Which tensors a server wants, by the Hugging Face directory that it was started with.
#pragma once

#include <filesystem>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

// Names, shapes and dtypes of the directory's files, without those that say nothing new (model::says_nothing_new): a tied
// head follows the embedding, whether the files hold it or not. Throws Error where they cannot be read.
std::vector<TensorInfo> tensors_of_directory(const std::filesystem::path& directory);

// Float tensors of the dtype that most bytes have get the one that the server computes in; those kept in another on
// purpose stay as they are.
void follow_dtype(std::vector<TensorInfo>& tensors, DType computes_in);

}  // namespace tandem::engine
