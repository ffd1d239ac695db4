// The tiny Hugging Face directories that the cases are told with: a tokenizer of single bytes, weights by a seed, and any
// key of any file other than it should be. Written as files, byte by byte, by nothing of the product.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem::test {

// Tokens of tiny and chain models: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|>, then one a byte; the vocabulary has 264
// rows, so that the last five are padding.
inline constexpr int kCaseVocabulary = 264;
int case_token(char byte);

// Removes a key where a value is asked for: {"torch_dtype", kDrop}.
inline const nlohmann::json kDrop = "DROP";

struct Poke {  // one element of a matrix, after everything else
    std::string tensor;
    std::size_t row = 0, column = 0;
    float value = 0;
};

struct CaseModel {
    nlohmann::json config = nlohmann::json::object();            // keys of config.json; kDrop removes one
    std::optional<nlohmann::json> generation_config;             // the whole file
    nlohmann::json tokenizer_config = nlohmann::json::object();  // keys; kDrop removes one
    bool tokenizer = true;                                       // whether there are tokenizer files
    std::string dtype = "F32";                                   // of every tensor: F32, F16, BF16
    std::vector<Poke> pokes;
    unsigned seed = 0;
    bool untied = false;
    std::optional<int> ends_with;  // write_qwen2 alone
};

// A Qwen3 of two layers with random weights: hidden 32, heads 4 of 8, 2 for keys and values, feed-forward 48.
void write_tiny(const std::string& folder, const CaseModel& model = {});
// A Llama that says the successor of each token with certainty: words as {"a", "b", "<|im_end|>", "x", "\n"}.
void write_chain(const std::string& folder, const std::vector<std::string>& words,
                 const CaseModel& model = {});
// A Qwen2 of two layers, ids 0 to 255 bytes, 256 <s>, 257 </s>, 258 <|im_end|>, no eos_token_id. ends_with: the token that
// is most likely after some prompts; 65 after the others.
void write_qwen2(const std::string& folder, const CaseModel& model = {});

// FILE of the folder, whole; and a JSON file with some keys changed.
void write_text(const std::string& file, const std::string& text);
void change_json(const std::string& file, const nlohmann::json& keys);

}  // namespace tandem::test
