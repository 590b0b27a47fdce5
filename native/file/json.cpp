#include "file/json.h"

#include <cstddef>
#include <cstring>

namespace dbq {
namespace {

constexpr int MAX_DEPTH = 64;
constexpr std::ptrdiff_t MAX_NUMBER = 400;  // characters

// Every function takes what it is named after from the front of the text, and returns whether it was there.
// The zero byte at the end fits no rule, so nothing reads past it.
class Json {
public:
    explicit Json(const char* text) : at_(text) {}

    bool is_object() {
        space();
        return *at_ == '{' && value(0) && *at_ == 0;
    }

private:
    bool one(char c) { return *at_ == c && ++at_ != nullptr; }
    bool any_of(const char* characters) { return *at_ && std::strchr(characters, *at_) && ++at_; }
    void space() {
        while (any_of(" \t\n\r")) continue;
    }

    bool value(int depth) {
        space();
        if (*at_ == '{' || *at_ == '[') return depth < MAX_DEPTH && items(depth);
        const bool found = *at_ == '"' ? string() : word("true") || word("false") || word("null") || number();
        space();
        return found;
    }

    // An object or an array.
    bool items(int depth) {
        const bool object = *at_++ == '{';
        const char end = object ? '}' : ']';
        space();
        if (!one(end)) {
            do {
                space();
                if (object && !(string() && (space(), one(':')))) return false;
                if (!value(depth + 1)) return false;
            } while (one(','));
            if (!one(end)) return false;
        }
        space();
        return true;
    }

    bool word(const char* letters) {
        const size_t length = std::strlen(letters);
        if (std::strncmp(at_, letters, length) != 0) return false;
        at_ += length;
        return true;
    }

    bool string() {
        if (!one('"')) return false;
        while (!one('"')) {
            if (static_cast<unsigned char>(*at_) < ' ') return false;
            if (*at_++ == '\\' && !escape()) return false;
        }
        return true;
    }

    bool escape() {
        if (!one('u')) return any_of("\"\\/bfnrt");
        for (int i = 0; i < 4; ++i)
            if (!any_of("0123456789abcdefABCDEF")) return false;
        return true;
    }

    bool digits() {
        const char* const start = at_;
        while (*at_ >= '0' && *at_ <= '9') ++at_;
        return at_ > start;
    }

    bool number() {
        const char* const start = at_;
        one('-');
        if (!one('0') && !digits()) return false;
        if (one('.') && !digits()) return false;
        if (any_of("eE")) {
            any_of("+-");
            if (!digits()) return false;
        }
        return at_ - start <= MAX_NUMBER;
    }

    const char* at_;
};

}  // namespace

bool is_json_object(const std::string& text) { return Json(text.c_str()).is_object(); }

}  // namespace dbq
