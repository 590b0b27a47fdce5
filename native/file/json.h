// The facts of a file are JSON that the engine does not interpret, but refuses unless every reader would
// accept it.
#pragma once

#include <string>

namespace dbq {

// Whether a text without zero bytes is a JSON object as in RFC 8259, within the limits of docs/format.md.
bool is_json_object(const std::string& text);

}  // namespace dbq
