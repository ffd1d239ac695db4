#include "common/file_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "common/printable.h"

namespace tandem {
namespace {

using namespace std::string_view_literals;

struct Magic {
    std::string_view bytes;
    const char* what;
};

// Of the formats that weights and their containers come in.
constexpr std::array kMagics{
    Magic{"version https://git-lfs.github.com/spec/"sv, "is a Git LFS pointer, not the file: git lfs pull"},
    Magic{"# xet version"sv, "is a Xet pointer, not the file: download it with the hub's own client"},
    Magic{"/annex/objects/"sv, "is a git-annex pointer, not the file: git annex get"},
    Magic{"PK\x03\x04"sv,
          "is a zip archive (torch.save writes such, too): unpack it, or save the tensors as safetensors"},
    Magic{"PK\x05\x06"sv, "is an empty zip archive"},
    Magic{"\x1f\x8b"sv, "is compressed by gzip: gunzip it"},
    Magic{"\x28\xb5\x2f\xfd"sv, "is compressed by Zstandard: unzstd it"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "is compressed by xz: unxz it"},
    Magic{"BZh"sv, "is compressed by bzip2: bunzip2 it"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "is a 7-zip archive: unpack it"},
    Magic{"Rar!\x1a\x07"sv, "is a RAR archive: unpack it"},
    Magic{"GGUF"sv, "is a GGUF file, as llama.cpp reads them: the model's safetensors are needed"},
    Magic{"\x89HDF\r\n\x1a\n"sv, "is an HDF5 file, as Keras writes them: safetensors are needed"},
    Magic{"\x93NUMPY"sv, "is an array of NumPy: safetensors are needed"},
    Magic{"\x7f"
          "ELF"sv,
          "is a program"},
    Magic{"%PDF-"sv, "is a PDF"},
};

// Protocols 2 to 5 begin with PROTO and the protocol's number.
bool is_pickle(std::string_view head) {
    return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 &&
           head.substr(2).find_first_of("}]X(c\x8a\x95q") == 0;
}

// Old ones have no magic: the name of the first file, and in its checksum's place octal digits.
bool is_tar(std::string_view head) {
    return head.size() >= 262 && head.substr(257, 5) == "ustar"sv;
}

bool begins_with(std::string_view text, std::string_view word) {
    return text.size() >= word.size() &&
           std::equal(word.begin(), word.end(), text.begin(),
                      [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

std::string_view trimmed(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    return first == std::string_view::npos ? ""sv : text.substr(first);
}

std::string page(std::string_view text) {
    if (begins_with(text, "<!doctype html") || begins_with(text, "<html") || begins_with(text, "<head"))
        return "is a page of HTML, not the file: what it was downloaded from answered with a page";
    if (begins_with(text, "<?xml") || begins_with(text, "<error"))
        return "is XML, not the file: what it was downloaded from answered with a message";
    return "";
}

// Its first line, where a server's short answer was saved under the file's name.
std::string message(std::string_view text) {
    constexpr std::size_t kShown = 80;
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    const bool plain = !line.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) >= ' ' && c != '\x7f') || c == '\n' || c == '\r' || c == '\t';
    });
    if (!plain) return "";
    return fmt::format("is text, not the file; it begins with \"{}\"",
                       printable(std::string(line.substr(0, kShown))));
}

}  // namespace

std::string foreign_kind(std::string_view head) {
    head = head.substr(0, kFileHeadBytes);
    for (const Magic& magic : kMagics) {
        if (head.starts_with(magic.bytes)) return magic.what;
    }
    if (is_pickle(head))
        return "is a pickle (torch.save), which could run code: save the tensors as safetensors";
    if (is_tar(head)) return "is a tar archive: unpack it";
    if (head.size() >= 8 && head.find_first_not_of('\0') == std::string_view::npos)
        return "begins with zeros: a copy or download that was never finished";
    return page(trimmed(head));
}

std::string file_kind(std::string_view head) {
    head = head.substr(0, kFileHeadBytes);
    if (head.empty()) return "is empty";
    if (const std::string kind = foreign_kind(head); !kind.empty()) return kind;
    const std::string_view text = trimmed(head);
    return text.empty() ? "is blank" : message(text);
}

std::string not_json(std::string_view text, const std::string& why, bool ends) {
    const std::string_view words = trimmed(text);
    const std::string malformed = "malformed JSON: " + why;
    if (words.starts_with('{') || words.starts_with('['))  // JSON that is wrong further on
        return malformed + (ends ? "; it ends in its middle: half copied or downloaded?" : "");
    const std::string kind = file_kind(text);
    return kind.empty() ? malformed : fmt::format("{} ({})", kind, malformed);
}

}  // namespace tandem
